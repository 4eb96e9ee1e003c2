"""One forward of a transformer of FLUX.1 [dev]'s shape (11.9 B parameters, random weights, bf16) on a GPU: diffusers'
own call, the same as a captured graph, and as a graph of compiled blocks, in one process.

Outputs are compared with the eager call's, ‖out - ref‖ / ‖ref‖. `compile` is seconds until the first call of all
sizes is done; `graph` is the memory of the graphs.

    python -m benchmarks.replay [--sizes 512,1024] [--layers 19,38] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.transformer import error, timed
from omnic.runtime.compiled import Compiled, repeated
from omnic.runtime.replay import Replay

DEVICE = torch.device("cuda")
TOKENS = 512
CONFIG = {
    "patch_size": 1, "in_channels": 64, "attention_head_dim": 128, "num_attention_heads": 24,
    "joint_attention_dim": 4096, "pooled_projection_dim": 768, "guidance_embeds": True, "axes_dims_rope": (16, 56, 56),
}  # fmt: skip


def built(layers: tuple[int, int]) -> Any:
    from diffusers import FluxTransformer2DModel

    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    with torch.device(DEVICE):
        module = FluxTransformer2DModel(**CONFIG, num_layers=layers[0], num_single_layers=layers[1])
    torch.set_default_dtype(torch.float32)
    return module.eval().requires_grad_(False)


def arguments(side: int) -> dict[str, Any]:
    """Of one row, as `families.flux` calls it."""
    places = (side // 16) ** 2
    generator = torch.Generator(DEVICE).manual_seed(side)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, device=DEVICE).to(torch.bfloat16)

    rows, columns = torch.meshgrid(torch.arange(side // 16), torch.arange(side // 16), indexing="ij")
    ids = torch.stack([torch.zeros_like(rows), rows, columns], -1).reshape(-1, 3).float().to(DEVICE)
    return {
        "hidden_states": drawn(1, places, 64), "timestep": torch.full((1,), 0.5, device=DEVICE),
        "guidance": torch.full((1,), 3.5, device=DEVICE), "pooled_projections": drawn(1, 768),
        "encoder_hidden_states": drawn(1, TOKENS, 4096), "txt_ids": torch.zeros(TOKENS, 3, device=DEVICE),
        "img_ids": ids, "return_dict": False,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--layers", default="19,38")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    sizes = sorted(map(int, asked.sizes.split(",")), reverse=True)
    double, single = map(int, asked.layers.split(","))
    with torch.inference_mode():
        module = built((double, single))
        given = {side: arguments(side) for side in sizes}
        forward = module.forward
        wanted = {side: module(**given[side])[0] for side in sizes}
        rows: dict[str, dict[str, float]] = {
            str(side): {"eager": timed(lambda side=side: module(**given[side]))} for side in sizes
        }
        for name in ("captured", "compiled"):
            compiled = Compiled(repeated([module])) if name == "compiled" else None
            replay = Replay({"transformer": module}, DEVICE, compiled)
            began = time.perf_counter()
            with replay.learning():
                for side in sizes:
                    module(**given[side])
            print(f"{name}: ready after {time.perf_counter() - began:.1f} s, {replay.stats()}", flush=True)
            for side in sizes:
                rows[str(side)][name] = timed(lambda side=side: module(**given[side]))
                found = module(**given[side])[0]
                rows[str(side)][f"{name} off by"] = error(found, wanted[side])
            module.forward = forward
            replay.graphs.clear()
    for side in sizes:
        print(side, {key: round(value, 5) for key, value in rows[str(side)].items()}, flush=True)
    if asked.json:
        about = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
        asked.json.write_text(json.dumps({**about, "milliseconds": rows}, indent=1))


if __name__ == "__main__":
    main()
