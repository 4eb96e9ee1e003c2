"""Whole pictures of a built Qwen-Image pipeline on a GPU against diffusers' own pipeline, over the same modules in the
same process: text encoder, 20 steps with guidance, VAE.

Both get the same noise and the same states of the text, which both make with the same encoder. The peers are diffusers
eager and with its transformer's blocks compiled. Pictures are compared with those of omnic's eager steps: what bf16
makes of the order of sums is as large between diffusers and those.

    omnic build qwen.omni --target gpu:h200 -o DIR     # of a pipeline whose model may be random("qwen_image", like = …)
    python -m benchmarks.image DIR [--sizes 256,512,1024] [--steps 20] [--pairs 3] [--no-compiled] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omnic import manifest
from omnic.expr import Size
from omnic.runtime.flow import Finished, Piece
from omnic.runtime.latents import noise, packed
from omnic.runtime.pipeline import generated
from omnic.runtime.stepping import Eager

PROMPT = "a lighthouse on a cliff in a storm, oil on canvas, waves breaking over the rocks below"
TARGETS = {256: 5.0, 512: 3.0, 1024: 1.3}
GUIDANCE = 4.0


class Ours:
    def __init__(self, pipeline: Any) -> None:
        self.pipeline, self.stages = pipeline, {}

    async def make(self, size: int, steps: int) -> NDArray[np.uint8]:
        flow = self.pipeline.images_generations_image(
            prompt=PROMPT, size=Size(size, size), steps=steps, guidance=GUIDANCE, seed=size
        )
        picture = None
        async for event in flow:
            if isinstance(event, Piece):
                picture = event.value
            elif isinstance(event, Finished):
                self.stages = {name: facts["seconds"] for name, facts in event.stages.items()}
        assert picture is not None
        return picture

    async def eagerly(self, size: int, steps: int) -> NDArray[np.uint8]:
        """The same by omnic's eager steps."""
        draw = self.pipeline.draw_
        captured, draw._stepping = draw._stepping, Eager(draw._denoiser, None, None)
        try:
            return await self.make(size, steps)
        finally:
            draw._stepping = captured


class Theirs:
    def __init__(self, pipeline: Any) -> None:
        from diffusers import FlowMatchEulerDiscreteScheduler, QwenImagePipeline

        class Placed(QwenImagePipeline):  # type: ignore[misc]  # diffusers has no types
            _execution_device = property(lambda self: torch.device("cuda"))

        draw, paint = pipeline.draw_, pipeline.paint
        config = pipeline.build.manifest.model("qwen").config["components"]["scheduler"]["config"]
        self.encoder, self.transformer = pipeline.encode._transform, draw._denoiser._transformer
        self.device = draw._device
        scheduler = FlowMatchEulerDiscreteScheduler.from_config(dict(config))
        paint._transform._vae.to(torch.bfloat16)  # its encoder too, which is on no device: diffusers looks at that
        self.pipe = Placed(scheduler, paint._transform._vae, None, None, self.transformer)
        self.pipe.set_progress_bar_config(disable=True)

    def make(self, size: int, steps: int) -> NDArray[np.uint8]:
        return self.device.submit(lambda: self._make(size, steps)).result()

    def _make(self, size: int, steps: int) -> NDArray[np.uint8]:
        states = [self.encoder._encoded(text, "negative_prompt")["states"] for text in (PROMPT, " ")]
        masks = [torch.ones(s.shape[:2], dtype=torch.long, device=s.device) for s in states]
        side = size // self.pipe.vae_scale_factor
        start = noise((1, self.pipe.vae.config.z_dim, side, side), torch.Generator().manual_seed(size))
        found = self.pipe(
            prompt_embeds=states[0], prompt_embeds_mask=masks[0], negative_prompt_embeds=states[1],
            negative_prompt_embeds_mask=masks[1], true_cfg_scale=GUIDANCE, height=size, width=size,
            num_inference_steps=steps, latents=packed(start).to(states[0]), output_type="np",
        ).images[0]  # fmt: skip
        return (found * 255).round().astype(np.uint8)


def apart(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """Mean difference of pixels, of 255."""
    return float(np.abs(one.astype(np.int16) - other.astype(np.int16)).mean())


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median of seconds, and the last result."""
    found, made = [], None
    for _ in range(repeats):
        began = time.perf_counter()
        made = call()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - began)
    return statistics.median(found), made


async def measured(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []

    def note(**facts: Any) -> None:
        rows.append(facts)
        print("  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in facts.items()), flush=True)

    sizes, steps = [int(s) for s in options.sizes.split(",")], options.steps
    kind = generated(options.build, manifest.read(options.build).class_name)
    began = time.perf_counter()
    async with kind.load() as pipeline:
        note(what="loaded and captured", seconds=time.perf_counter() - began, **pipeline.draw_.stats())
        ours, theirs = Ours(pipeline), Theirs(pipeline)
        loop = asyncio.get_running_loop()

        async def timed_ours(size: int) -> tuple[float, NDArray[np.uint8]]:
            found = []
            for _ in range(options.pairs):
                began = time.perf_counter()
                made = await ours.make(size, steps)
                found.append(time.perf_counter() - began)
            return statistics.median(found), made

        seconds: dict[int, float] = {}
        for size in sizes:
            await ours.make(size, 2)
            seconds[size], picture = await timed_ours(size)
            eager = await ours.eagerly(size, steps)
            note(what="omnic", size=size, seconds=seconds[size], apart=apart(picture, eager), **ours.stages)
            await loop.run_in_executor(None, theirs.make, size, 2)
            spent, other = await loop.run_in_executor(None, timed, lambda s=size: theirs.make(s, steps), 1)
            note(what="diffusers", size=size, seconds=spent, ratio=spent / seconds[size], apart=apart(other, eager))
        if options.compiled:
            for block in theirs.transformer.transformer_blocks:
                block.compile()
            for size in sizes:
                began = time.perf_counter()
                await loop.run_in_executor(None, theirs.make, size, 2)
                compiled = time.perf_counter() - began
                spent, other = await loop.run_in_executor(
                    None, timed, lambda s=size: theirs.make(s, steps), options.pairs
                )
                again, _ = await timed_ours(size)
                note(what="diffusers compiled", size=size, seconds=spent, beside=again, ratio=spent / again,
                     target=TARGETS.get(size), compile_seconds=compiled)  # fmt: skip
        note(what="memory", peak_gib=torch.cuda.max_memory_allocated() / 2**30, **pipeline.draw_.stats())
    return rows


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("build", type=Path)
    arguments.add_argument("--sizes", default="256,512,1024")
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    rows = asyncio.run(measured(options))
    if options.json:
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
        options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
