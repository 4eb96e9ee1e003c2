"""One forward of the Qwen-Image transformer (20.4 B parameters, random weights) on a GPU with blocks on the host, and
with all of them on the device: diffusers' own module, eagerly, in one process.

A forward is predicted to take the longer of two: its work (as measured with all blocks on the device, and as a plan
predicts it), and the bytes that it fetches over the link of the preset `--target`. Outputs are compared bit for bit.
Peaks are what the allocator of torch gave out, without weights that this benchmark keeps there to measure again.

    python -m benchmarks.offload [--size 1024] [--rows 2,4] [--residents 36,0] [--layers 60] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.transformer import DEVICE, Inputs, built, timed
from omnic import target
from omnic.runtime.link import Pages, link_to
from omnic.runtime.offload import Offload

TARGETS = {"over resident, where the work hides the link": 1.05, "over predicted": 1.15}


class Whole:
    """A module, all its weights on the device, and memory of the host for each of its blocks."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.blocks: list[nn.Module] = list(module.transformer_blocks)
        self.weights = {name: p.data for name, p in module.named_parameters()}
        self.pages: dict[int, Pages] = {}

    def pin(self) -> None:
        """The weights of all blocks on the host, in the order that an offload gives them."""
        offload = Offload(0, DEVICE)
        rooms = offload.rooms(self.module, self._shapes())
        (line,) = offload._lines

        def ready(away: Any) -> None:
            with torch.inference_mode():  # each thread has its own
                away.pages.bytes.zero_()
            away.pages.pin()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ready, line))
        for name, room in rooms.items():
            room.copy_(self.weights[name], non_blocking=True)
        torch.cuda.synchronize()
        self.pages = {id(away.block): away.pages for away in line}

    def offloaded(self, resident: int) -> Offload:
        offload = Offload(resident, DEVICE)
        offload.rooms(self.module, self._shapes())
        for away in offload._lines[0]:
            away.pages = self.pages[id(away.block)]
        offload.begin()
        return offload

    def back(self) -> None:
        """All weights on the device again."""
        torch.cuda.synchronize()
        for block in self.blocks:
            block.__dict__.pop("forward", None)
        for name, weight in self.weights.items():
            owner, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(owner), leaf, nn.Parameter(weight, requires_grad=False))

    def kept(self, offload: Offload) -> int:
        """Bytes on the device that only this benchmark keeps there."""
        gone = {id(away.block) for away in offload._lines[0]}
        return sum(
            weight.nbytes
            for at, block in enumerate(self.blocks)
            if id(block) in gone
            for name, weight in self.weights.items()
            if name.startswith(f"transformer_blocks.{at}.")
        )

    def _shapes(self) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        return {name: (tuple(w.shape), w.dtype) for name, w in self.weights.items()}


def link_rate(pages: Sequence[Pages]) -> float:
    """Bytes a second of copies of whole blocks, and of nothing else."""
    link, into = link_to(DEVICE), torch.empty_like(pages[0].bytes, device=DEVICE)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for page in pages:
        link.copy(into[: page.bytes.numel()], page.bytes, link.worked())
    link.close()
    return sum(page.bytes.numel() for page in pages) / (time.perf_counter() - began)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--size", type=int, default=1024)
    arguments.add_argument("--rows", default="2,4")
    arguments.add_argument("--residents", default="36,0")
    arguments.add_argument("--layers", type=int, default=60)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--target", default="h200")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    counts, residents = ([int(n) for n in given.split(",")] for given in (options.rows, options.residents))
    preset = target.presets()[options.target]
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        began = time.perf_counter()
        whole = Whole(built(options.layers))
        torch.cuda.synchronize()
        print(f"built in {time.perf_counter() - began:.1f} s", flush=True)
        inputs = {n: Inputs(options.size, n, whole.module) for n in counts}
        wanted: dict[int, Tensor] = {}
        work: dict[int, float] = {}
        for n in counts:
            torch.cuda.reset_peak_memory_stats()
            wanted[n] = inputs[n].eager()
            work[n] = timed(inputs[n].eager, options.repeats)
            peak = torch.cuda.max_memory_allocated()
            rows.append({"resident": options.layers, "rows": n, "ms": work[n], "peak_bytes": peak})
            print(f"all resident, {n} rows: {work[n]:8.2f} ms, peak {peak / 2**30:.1f} GiB", flush=True)
        began = time.perf_counter()
        whole.pin()
        rate = link_rate([whole.pages[id(block)] for block in whole.blocks])
        print(f"pinned in {time.perf_counter() - began:.1f} s; the link: {rate / 1e9:.1f} GB/s", flush=True)
        for resident in residents:
            offload = whole.offloaded(resident)
            fetched = offload.host_bytes
            for n in counts:
                torch.cuda.reset_peak_memory_stats()
                same = bool(inputs[n].eager().equal(wanted[n]))
                ms = timed(inputs[n].eager, options.repeats)
                peak = torch.cuda.max_memory_allocated() - whole.kept(offload)
                predicted = max(work[n], 1000 * fetched / preset.link)
                rows.append({
                    "resident": resident, "rows": n, "ms": ms, "predicted_ms": predicted, "peak_bytes": peak,
                    "host_bytes": fetched, "equal": same, "missed": offload.missed,
                })  # fmt: skip
                print(
                    f"{resident:3d} resident, {n} rows: {ms:8.2f} ms, {ms / work[n]:.3f} of resident, predicted"
                    f" {predicted:.2f} ({ms / predicted:.3f}), fetches {fetched / 2**30:.1f} GiB, peak"
                    f" {peak / 2**30:.1f} GiB, {'equal' if same else 'DIFFERENT'}, missed {offload.missed}",
                    flush=True,
                )
            whole.back()
    if options.json:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "link": rate, "targets": TARGETS}
        options.json.write_text(json.dumps({**facts, "size": options.size, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
