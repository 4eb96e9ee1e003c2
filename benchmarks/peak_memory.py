"""What a whole request takes at its peak, beside diffusers' own pipeline: the same tiny weights, seed, size and steps.

Each side runs in a process of its own, several times: the model is loaded, a small request warms libraries up, and then
the peak of the resident set (`VmHWM`) over one large request is read, above what was resident before it. Models are
tiny and random, in float32, pictures as large as makes what a request takes most of it. What both sides make is
compared. Beside that, weights and latents as the plan has them and as they are once loaded and made: bytes, exactly.

    python -m benchmarks.peak_memory [--only NAME…] [--runs 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

PIPELINES = Path(__file__).parent.parent / "pipelines"
SEED, STEPS = 7, 4


@dataclass(frozen=True, slots=True)
class Family:
    """A shipped pipeline, the tiny model it runs on, a size, and what both sides are asked for."""

    pipeline: str
    method: str
    fixture: str
    size: tuple[int, int]  # width, height
    frames: int | None = None
    ours: Mapping[str, Any] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)


PICTURE, VIDEO = "images_generations_image", "videos_video"
FAMILIES = {
    "qwen_image": Family(
        "qwen_image", PICTURE, "qwen_image", (512, 384), ours={"guidance": 4.0}, theirs={"true_cfg_scale": 4.0}
    ),
    "flux": Family("flux", PICTURE, "flux", (512, 384), theirs={"guidance_scale": 3.5, "negative_prompt": None}),
    "sdxl": Family("sdxl", PICTURE, "sdxl", (512, 384), theirs={"guidance_scale": 5.0}),
    "wan": Family(
        "wan22_t2v", VIDEO, "wan", (256, 192), 17, theirs={"guidance_scale": 4.0, "guidance_scale_2": 3.0}
    ),
    "ltx2": Family(
        "ltx2", "videos_video_sound", "ltx2", (512, 384), 17,
        theirs={
            "guidance_scale": 4.0, "audio_guidance_scale": 4.0, "modality_scale": 1.0, "audio_modality_scale": 1.0,
            "guidance_rescale": 0.0, "stg_scale": 0.0, "audio_stg_scale": 0.0,
        },
    ),
}  # fmt: skip


# --- one process ------------------------------------------------------------------------------------------------------


class Peak:
    """The most that this process had resident at once since it was made, above what it had then, in bytes."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
        self._before = self._status("VmRSS")

    @property
    def bytes(self) -> int:
        return self._status("VmHWM") - self._before

    @staticmethod
    def _status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


def made(family: Family, folder: Path) -> None:
    """Writes the model, and the pipeline built on it at the large size and at a small one."""
    from omnic import driver
    from omnic.diagnostics import Sink, render
    from tests.families.diffusion.fixtures import all_fixtures
    from tests.families.diffusion.parity import Pair

    pair = Pair(all_fixtures()[f"random--{family.fixture}"], folder / "model")
    if family.fixture == "qwen_image":
        (folder / "skip").write_text(str(pair.part("text_encoder")._skip))
    text = (PIPELINES / f"{family.pipeline}.omni").read_text().partition("\ndeploy ")[0]
    for name, (size, frames) in shapes(family).items():
        written = re.sub(r"hf\(.*\)", 'path("model")', text)
        written, count = re.subn(
            r"(param size: size =) .*", rf"\1 {size[0]}x{size[1]} in [{size[0]}x{size[1]}]", written
        )
        assert count == 1
        written = re.sub(r"(param frames: int =) \d+ in (\d+)\.\.\d+", rf"\1 {frames} in \2..{frames}", written)
        source = folder / f"{name}.omni"
        source.write_text(re.sub(r"^(// .*\n)*pipeline \w+", f"pipeline {name}", written, flags=re.M))
        sink = Sink()
        assert driver.build(source, folder / name, sink) is not None, render(sink.diagnostics)


def shapes(family: Family) -> dict[str, tuple[tuple[int, int], int | None]]:
    small = (128, 64) if family.fixture == "ltx2" else (64, 48)
    return {"large": (family.size, family.frames), "small": (small, family.frames and 9)}


def ours(family: Family, folder: Path) -> dict[str, Any]:
    """Peak, weights and latents, planned and as they are; what was made goes to `ours.npy`."""
    from omnic.runtime.pipeline import generated

    weights: dict[str, int] = {}
    latents: list[int] = []

    def loaded(stage: str, done: int, total: int) -> None:
        weights[stage] = done

    async def run(name: str) -> tuple[Any, int]:
        async with generated(folder / name, name.title()).load(progress=loaded) as pipeline:
            (denoiser,) = (stage._denoiser for stage in pipeline.stages if hasattr(stage, "_denoiser"))
            finish = denoiser.finish

            def noted(job: Any) -> Any:
                found = finish(job)
                latents.append(found["latents"].values.nbytes)
                return found

            denoiser.finish = noted
            request = {"prompt": "a red cat", "steps": STEPS, "seed": SEED, **family.ours}
            if family.theirs.get("negative_prompt", "blue") is not None:
                request["negative"] = "blue"
            output = "video" if family.frames else "image"
            peak = Peak()
            made = (await getattr(pipeline, family.method)(**request).result())[output]
            return made, peak.bytes

    asyncio.run(run("small"))
    picture, peak = asyncio.run(run("large"))
    np.save(folder / "ours.npy", picture)
    plan = json.loads((folder / "large" / "plan.json").read_text())
    return {
        "peak": peak,
        "weights": sum(weights.values()),
        "planned_weights": sum(
            count for device in plan["devices"].values() for item, count in device["items"].items() if "weights" in item
        ),
        "latents": latents[-1],
        "planned_latents": planned_latents(family, plan),
    }


def planned_latents(family: Family, plan: Mapping[str, Any]) -> int:
    """Bytes of the latents that go to the VAE, by the type of their edge: float32."""
    (kind,) = {c["type"] for c in plan["channels"].values() if c["from"].endswith(".latents")}
    found = re.fullmatch(r"latents<(\d+), /(?:(\d+)x)?(\d+)x(\d+).*>", kind)
    assert found is not None, kind
    channels, time, high, wide = (int(n or 1) for n in found.groups())
    frames = 1 if family.frames is None else (family.frames - 1) // time + 1
    return 4 * channels * frames * (family.size[1] // high) * (family.size[0] // wide)


def theirs(family: Family, folder: Path) -> dict[str, Any]:
    """Peak; what was made goes to `theirs.npy`."""
    import diffusers
    import torch

    from tests.families.diffusion.fixtures import all_fixtures

    kind = getattr(diffusers, all_fixtures()[f"random--{family.fixture}"].pipeline)
    pipe = kind.from_pretrained(folder / "model")
    pipe.set_progress_bar_config(disable=True)
    if (folder / "skip").exists():
        pipe.prompt_template_encode_start_idx = int((folder / "skip").read_text())

    def run(size: tuple[int, int], frames: int | None) -> Any:
        request = {"prompt": "a red cat", "negative_prompt": "blue", "width": size[0], "height": size[1]}
        request |= {"num_inference_steps": STEPS, "generator": torch.Generator().manual_seed(SEED)} | dict(
            family.theirs
        )
        if frames:
            request["num_frames"] = frames
        found = pipe(**request, output_type="np")
        return found.frames[0] if frames else found.images[0]

    run(*shapes(family)["small"])
    peak = Peak()
    picture = run(*shapes(family)["large"])
    found = peak.bytes
    np.save(folder / "theirs.npy", np.rint(np.asarray(picture) * 255).astype(np.uint8))
    return {"peak": found}


# --- both -------------------------------------------------------------------------------------------------------------


def child(what: str, name: str, folder: Path) -> dict[str, Any]:
    """What one process of this script says."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.peak_memory", "--child", what, name, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(name: str, runs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        child("make", name, folder)
        peaks: dict[str, list[int]] = {"ours": [], "theirs": []}
        told: dict[str, Any] = {}
        for number in range(runs):
            for side in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
                said = child(side, name, folder)
                peaks[side].append(said.pop("peak"))
                told |= said
        pictures = [np.load(folder / f"{side}.npy").astype(int) for side in ("ours", "theirs")]
        assert pictures[0].shape == pictures[1].shape, [p.shape for p in pictures]
        assert pictures[0].std() > 1
        return {
            "family": name,
            **{f"{side}_bytes": statistics.median(each) for side, each in peaks.items()},
            "ratio": statistics.median(peaks["ours"]) / statistics.median(peaks["theirs"]),
            "runs": peaks,
            "differ_by": int(np.abs(pictures[0] - pictures[1]).max()),
            **told,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        what, name, folder = asked.child
        sides = {"make": made, "ours": ours, "theirs": theirs}
        print(json.dumps(sides[what](FAMILIES[name], Path(folder)) or {}))
        return
    print(f"{'':<12}{'request':>14}{'omnic':>12}{'diffusers':>12}{'ratio':>8}{'differ':>8}"
          f"{'weights':>12}{'planned':>12}{'latents':>10}{'planned':>10}")  # fmt: skip
    rows = []
    for name in asked.only:
        row = compared(name, asked.runs)
        rows.append(row)
        family = FAMILIES[name]
        shape = "x".join(map(str, family.size)) + (f"x{family.frames}" if family.frames else "")
        print(f"{name:<12}{shape:>14}{row['ours_bytes'] / 2**20:8.1f} MiB{row['theirs_bytes'] / 2**20:8.1f} MiB"
              f"{row['ratio']:8.2f}{row['differ_by']:8}{row['weights']:12}{row['planned_weights']:12}"
              f"{row['latents']:10}{row['planned_latents']:10}", flush=True)  # fmt: skip
    if asked.json:
        versions = {name: metadata.version(name) for name in ("omnic", "torch", "diffusers", "transformers")}
        record: dict[str, Any] = {"device": f"{platform.machine()} CPU", "versions": versions, "families": rows}
        asked.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
