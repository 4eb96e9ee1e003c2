"""A causal video VAE decoded whole, in chunks and in tiles, beside diffusers: peak memory, time, time to first frame.

The VAE is Wan 2.1's as released but narrower, with random weights; every way of decoding gives the same frames within
rounding, which is checked. Memory is what tensors take at once (`tests.live.Peak`), beside what the plan would say.

    python -m benchmarks.video_decode [--width 24] [--size 256x256] [--frames 9] [--tile 256x256] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from omnic.catalog import diffusion as d
from omnic.catalog import video
from omnic.catalog.diffusers import Component, Index
from omnic.expr import Size, evaluate
from omnic.runtime.chunks import Chunks
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.latents import restored
from omnic.runtime.pictures import to_pixels
from omnic.runtime.video_vae import VideoDecoder
from tests.live import Peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--size", default="256x256")
    parser.add_argument("--frames", type=int, default=9)
    parser.add_argument("--tile", default="256x256")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    size, tile = (Size(*map(int, text.split("x"))) for text in (asked.size, asked.tile))

    from diffusers import AutoencoderKLWan

    torch.manual_seed(0)
    vae = AutoencoderKLWan(base_dim=asked.width).eval().requires_grad_(False)
    config = dict(vae.config)
    decoder = VideoDecoder(vae, config)
    latents = Latents(torch.randn(1, 16, (asked.frames - 1) // 4 + 1, size.height // 8, size.width // 8))

    def theirs() -> Iterator[Any]:
        frames = vae.decode(restored(latents.values, config), return_dict=False)[0][0]
        yield np.stack([to_pixels(frame) for frame in frames.unbind(1)])

    def whole(**settings: Any) -> Iterator[Any]:
        for part in decoder.run(Ask(0, {"latents": latents}, settings)):
            yield from part.values()

    def chunks(**settings: Any) -> Iterator[Any]:
        push = decoder.begin(Ask(0, {}, settings))
        for piece in Chunks(1).push(latents):
            yield push(piece)["video"]

    ways: dict[str, tuple[Callable[[], Iterator[Any]], dict[str, Any] | None]] = {
        "diffusers": (theirs, None),
        "whole": (whole, {"chunked": False}),
        "chunks": (chunks, {"chunked": True}),
        "whole, tiles": (lambda: whole(tile=tile), {"chunked": False, "tile_high": tile.area}),
        "chunks, tiles": (lambda: chunks(tile=tile), {"chunked": True, "tile_high": tile.area}),
    }
    index = Index("WanPipeline", {}, {"vae": Component("vae", "diffusers", "AutoencoderKLWan", config)}, "here")
    formula = video.decode(index, d.latents(16, 4, 8, 8), 16).cost_as("fp32").activation_bytes
    shape = {"size_high": size.area, "frames_high": asked.frames, "tile_high": 1 << 40}
    rows, expected = [], None
    for name, (work, how) in ways.items():
        first, seconds, held, frames = measured(work)
        expected = frames if expected is None else expected
        assert int(np.abs(frames.astype(int) - expected.astype(int)).max()) <= 1, name
        said = int(evaluate(formula, shape | how)) if how is not None else None
        rows.append({"way": name, "first_s": first, "whole_s": seconds, "peak_bytes": held, "planned_bytes": said})
    print(f"{size} x {asked.frames} frames, {asked.width} channels, tiles of {tile}")
    for row in rows:
        said = f"{row['planned_bytes'] / 2**20:8.1f}" if row["planned_bytes"] else "       –"
        print(f"{row['way']:<14} first {row['first_s']:6.2f} s  all {row['whole_s']:6.2f} s  "
              f"peak {row['peak_bytes'] / 2**20:8.1f} MiB  planned {said} MiB")  # fmt: skip
    if asked.json:
        versions = {name: metadata.version(name) for name in ("torch", "diffusers")}
        about = {"machine": platform.processor() or platform.machine(), **versions, "threads": torch.get_num_threads()}
        asked.json.write_text(json.dumps({"about": about, "arguments": vars(asked) | {"json": None}, "rows": rows}))


def measured(work: Callable[[], Iterator[Any]]) -> tuple[float, float, int, Any]:
    """Seconds to the first frame and to the last, bytes at the peak, and the frames."""
    with torch.inference_mode():
        began = time.perf_counter()
        found, first = [], 0.0
        for frames in work():
            first = first or time.perf_counter() - began
            found.append(frames)
        seconds = time.perf_counter() - began
        with Peak() as peak:
            for _ in work():
                pass
    return first, seconds, peak.bytes, np.concatenate(found)


if __name__ == "__main__":
    main()
