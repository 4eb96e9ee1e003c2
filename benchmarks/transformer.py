"""One forward of the Qwen-Image transformer (20.4 B parameters, random weights) on a GPU: diffusers eager and compiled
by blocks, omnic's captured step in bf16 and in fp8, side by side in one process.

omnic makes what depends on the timesteps alone once a request, for all steps at once: its time, spread over `--steps`,
is part of the figure. Outputs are compared with diffusers' eager forward in float32 sums, ‖out - ref‖ / ‖ref‖.

    python -m benchmarks.transformer [--sizes 256,512,1024] [--layers 60] [--steps 20] [--profile] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.attention import Attention
from omnic.runtime.families.qwen_image_network import Modulations, Network
from omnic.runtime.families.qwen_image_weights import eight
from omnic.runtime.graphs import Graphs
from omnic.runtime.modules import in_fp8

DEVICE = torch.device("cuda")
TOKENS = 64
TARGETS = {"256": 16.0, "512": 34.0, "1024": 131.0, "1024 fp8": 90.0}
CONFIG = {
    "patch_size": 2, "in_channels": 64, "out_channels": 16, "attention_head_dim": 128, "num_attention_heads": 24,
    "joint_attention_dim": 3584, "axes_dims_rope": (16, 56, 56),
}  # fmt: skip


def built(layers: int) -> Any:
    from diffusers import QwenImageTransformer2DModel

    torch.set_default_dtype(torch.bfloat16)
    torch.manual_seed(0)
    with torch.device(DEVICE):
        module = QwenImageTransformer2DModel(**CONFIG, num_layers=layers)
    torch.set_default_dtype(torch.float32)
    for name, parameter in module.named_parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5 * (0.2 if "_mod" in name else 1.0))
        elif not name.endswith("bias"):
            torch.nn.init.ones_(parameter)
    return module.eval().requires_grad_(False)


def timed(call: Callable[[], Any], repeats: int = 10) -> float:
    """Median of milliseconds, by device events, after two calls."""
    for _ in range(2):
        call()
    found = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end))
    return statistics.median(found)


def error(out: Tensor, reference: Tensor) -> float:
    return float((out.float() - reference.float()).norm() / reference.float().norm())


class Inputs:
    def __init__(self, size: int, rows: int, module: Any) -> None:
        self.side, self.rows = size // 16, rows
        generator = torch.Generator(DEVICE).manual_seed(size)
        places = self.side**2
        self.x = torch.randn(rows, places, 64, device=DEVICE, generator=generator).bfloat16()
        self.states = torch.randn(rows, TOKENS, 3584, device=DEVICE, generator=generator).bfloat16()
        self.t = torch.full((rows,), 0.6, device=DEVICE, dtype=torch.bfloat16)
        self.module = module

    def eager(self) -> Tensor:
        found: Tensor = self.module(
            hidden_states=self.x, timestep=self.t, encoder_hidden_states=self.states,
            img_shapes=[[(1, self.side, self.side)]] * self.rows, return_dict=False,
        )[0]  # fmt: skip
        return found


class Captured:
    """omnic's step of one request with `rows` guidance branches, without guidance and scheduler."""

    def __init__(self, network: Network, inputs: Inputs) -> None:
        places = inputs.side**2
        text = torch.cat([network.text(row[None]) for row in inputs.states])
        turns = network.rotary([(1, inputs.side, inputs.side)], TOKENS)
        attention = Attention.of(inputs.rows, places + TOKENS, None, inputs.x)
        at = network.modulations(inputs.t[:1])
        self.out = torch.empty(inputs.rows, places, 64, dtype=torch.bfloat16, device=DEVICE)

        def body() -> None:
            self.out.copy_(network(inputs.x, text, attention, at, turns, places))

        self.graphs, self.body = Graphs(DEVICE), body
        self.graphs.capture("step", body)

    def __call__(self) -> Tensor:
        self.graphs.replay("step")
        return self.out


def once(network: Network, steps: int) -> float:
    """Milliseconds a step of what is made once a request."""
    times = torch.linspace(1, 0.05, steps, device=DEVICE, dtype=torch.bfloat16)
    made: list[Modulations] = []

    def call() -> None:
        made[:] = [network.modulations(times)]

    return timed(call, 5) / steps


def profile(call: Callable[[], Any], name: str) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    print(f"--- {name}", flush=True)
    for event in sorted(seen.key_averages(), key=lambda e: -e.device_time_total)[:16]:
        print(f"{event.device_time_total / 1000:9.3f} ms {event.count:6d} x  {event.key[:110]}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sizes", default="256,512,1024")
    arguments.add_argument("--rows", default="1,2")
    arguments.add_argument("--layers", type=int, default=60)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--profile", action="store_true")
    arguments.add_argument("--compiled", action="store_true", help="diffusers with its blocks compiled, too")
    arguments.add_argument("--no-fp8", action="store_true")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    sizes, counts = ([int(s) for s in given.split(",")] for given in (options.sizes, options.rows))
    rows: list[dict[str, Any]] = []

    def note(name: str, size: int, count: int, ms: float, wrong: float | None = None) -> None:
        rows.append({"what": name, "size": size, "rows": count, "ms": ms, "error": wrong})
        print(
            f"{name:28s} {size:5d} x{count} {ms:9.2f} ms  {'' if wrong is None else f'error {wrong:.2e}'}", flush=True
        )

    with torch.inference_mode():
        began = time.perf_counter()
        module = built(options.layers)
        torch.cuda.synchronize()
        print(f"built in {time.perf_counter() - began:.1f} s", flush=True)
        given = {(s, n): Inputs(s, n, module) for s in sizes for n in counts}
        wanted = {key: inputs.eager() for key, inputs in given.items()}
        for (size, count), inputs in given.items():
            note("diffusers eager", size, count, timed(inputs.eager, 5))
        for fp8 in (False, True)[: 1 if options.no_fp8 else 2]:
            name = "omnic captured" + (" fp8" if fp8 else "")
            if fp8:
                in_fp8(module, eight(options.layers))
            network = Network(module)
            torch.cuda.empty_cache()
            share = once(network, options.steps)
            print(f"made once: {share * options.steps:.2f} ms a request, {share:.3f} ms a step", flush=True)
            for (size, count), inputs in sorted(given.items(), reverse=True):
                try:
                    step = Captured(network, inputs)
                    wrong = error(step(), wanted[size, count])
                    note(name, size, count, timed(step) + share, wrong)
                    if options.profile:
                        profile(step, f"{name} {size} x{count}")
                    del step
                except Exception as failure:  # the other sizes still count
                    print(f"{name} {size} x{count}: {type(failure).__name__}: {failure}", flush=True)
            if not fp8 and options.compiled:
                for block in module.transformer_blocks:
                    block.compile()
                for (size, count), inputs in given.items():
                    began = time.perf_counter()
                    inputs.eager()
                    torch.cuda.synchronize()
                    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)
                    note("diffusers compiled by blocks", size, count, timed(inputs.eager, 5))
    if options.json:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "targets": TARGETS}
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
