"""The diffusion pipelines that ship: each checks and plans from its published config, and runs with random weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic import driver
from omnic.diagnostics import Sink
from omnic.runtime.families import qwen_image_edit
from omnic.runtime.flow import Step
from tests.pipelines.built import PIPELINES, running

PICTURE = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


@dataclass(frozen=True)
class Shipped:
    """A pipeline, how it is made tiny (patterns replaced in its text), and a request."""

    name: str
    class_name: str
    method: str
    tiny: dict[str, str]
    request: dict[str, Any]
    output: str = "image"
    shape: tuple[int, ...] = ()
    sound: str | None = None  # the output that is its sound


def drawing(name: str, class_name: str, family: str, *, like: str | None = None, **request: Any) -> Shipped:
    """One that makes a picture of 32x48 from a text, or changes one."""
    made_up = f'random("{family}")' if like is None else f'random("{family}", like = "random/{like}")'
    tiny = {r"hf\(.*\)": made_up, r"size = 1024x1024 in .*": "size = 32x48 in [32x48]"}
    method = f"images_{'edits' if 'picture' in request else 'generations'}_image"
    return Shipped(name, class_name, method, tiny, {"prompt": "a red cat", "steps": 2} | request, shape=(48, 32, 3))


def filming(name: str, class_name: str, family: str, like: str, **request: Any) -> Shipped:
    """One that makes a video of 9 frames of 32x64."""
    tiny = {
        r"hf\(.*\)": f'random("{family}", like = "random/{like}")',
        r"size = \d+x\d+ in .*": "size = 32x64 in [32x64]",
        r"int = \d+ in 5\.\.": "int = 9 in 5..",
    }
    request = {"prompt": "a red cat", "steps": 3} | request
    return Shipped(name, class_name, "videos_video", tiny, request, "video", (9, 64, 32, 3))


SHIPPED = (
    drawing("qwen_image", "QwenImage", "qwen_image"),
    drawing("flux", "Flux", "flux", negative="blue", true_cfg_scale=2.0),
    drawing("flux_schnell", "FluxSchnell", "flux", like="flux_schnell"),
    drawing("flux_edit", "FluxEdit", "flux", picture=PICTURE),
    drawing("z_image", "ZImage", "z_image"),
    drawing("flux2_klein", "Flux2Klein", "flux2"),
    drawing("flux2_klein_edit", "Flux2KleinEdit", "flux2", picture=np.tile(PICTURE, (4, 4, 1))),
    drawing("flux2", "Flux2", "flux2", like="flux2_dev"),
    drawing("sd3", "Sd3", "sd3", negative="blue"),
    drawing("sdxl", "Sdxl", "sdxl"),
    drawing("lumina2", "Lumina2", "lumina2", negative="blue"),
    Shipped(
        "qwen_image_edit",
        "QwenImageEdit",
        "images_edits_image",
        {r'hf\("Qwen/Qwen-Image-Edit"\)': 'random("qwen_image_edit")'},
        {"prompt": "a red cat", "picture": PICTURE, "steps": 2},
        shape=(64, 64, 3),
    ),
    Shipped(
        "ltx2",
        "Ltx2",
        "videos_video_sound",
        {
            r"hf\(.*\)": 'random("ltx2")',
            r"size = 768x512 in .*": "size = 64x96 in [64x96]",
            r"int = 121 in 9\.\.121": "int = 9 in 9..121",
        },
        {"prompt": "a red cat", "steps": 2, "negative": "blue"},
        "video",
        (9, 96, 64, 3),
        sound="sound",
    ),
    Shipped(
        "stable_audio",
        "StableAudio",
        "audio_speech_sound",
        {r"hf\(.*\)": 'random("stable_audio")', r"float = 30.0 in 1\.\.47": "float = 0.01 in 0.001..0.011"},
        {"prompt": "a drum", "steps": 2, "negative": "a voice"},
        "sound",
        (441,),
        sound="sound",
    ),
    Shipped(
        "cogvideox",
        "Cogvideox",
        "videos_video",
        {r"hf\(.*\)": 'random("cogvideox", like = "random/cogvideox_5b")', "720x480": "64x48", "= 49 in": "= 9 in"},
        {"prompt": "a red cat", "steps": 2, "negative": "blue"},
        "video",
        (9, 48, 64, 3),
    ),
    filming("hunyuan_video15", "HunyuanVideo15", "hunyuan_video15", "hunyuan_video15", negative="blue"),
    filming("wan22_t2v", "Wan22T2v", "wan", "wan", negative="blue"),
    filming("wan22_i2v", "Wan22I2v", "wan", "wan_i2v", picture=PICTURE),
    filming("wan22_ti2v", "Wan22Ti2v", "wan", "wan_ti2v", picture=PICTURE),
)
IDS = [shipped.name for shipped in SHIPPED]


@pytest.mark.parametrize("shipped", SHIPPED, ids=IDS)
def test_it_plans_for_a_gpu_from_its_published_config(shipped: Shipped) -> None:
    sink = Sink()
    front = driver.front(PIPELINES / f"{shipped.name}.omni", sink, deploy="h200")
    planned = driver.plan(front, sink) if front else None
    assert not sink.diagnostics
    assert planned is not None
    (gpu,) = (device for device in planned.pipeline.devices if device.name == "gpu0")
    assert 0 < gpu.planned_bytes <= gpu.capacity_bytes


@pytest.mark.parametrize("shipped", SHIPPED, ids=IDS)
def test_it_runs_with_random_weights(shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qwen_image_edit, "AREA", 64 * 64)  # the models are tiny
    source = tmp_path / f"{shipped.name}.omni"
    text = (PIPELINES / f"{shipped.name}.omni").read_text()
    for pattern, tiny in shipped.tiny.items():
        text, count = re.subn(pattern, tiny, text)
        assert count == 1, pattern
    source.write_text(text.partition("\ndeploy ")[0])
    sink = Sink()
    assert driver.build(source, tmp_path / "build", sink) is not None, sink.diagnostics

    async def work(pipeline: Any) -> list[dict[str, Any]]:
        calls = [getattr(pipeline, shipped.method)(**shipped.request, seed=seed) for seed in (1, 1, 2)]
        return [await call.result() for call in calls]

    async def look(pipeline: Any) -> list[Any]:
        flow = getattr(pipeline, shipped.method)(**shipped.request, seed=1)
        flow.previews = 1
        steps = [event async for event in flow if isinstance(event, Step)]
        return [step.preview for step in steps if step.preview is not None]

    with running(tmp_path / "build", shipped.class_name) as ask:
        answers, seen = ask(work), ask(look)
    first, again, other = (np.asarray(found[shipped.output]) for found in answers)
    assert first.shape == shipped.shape
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    if shipped.output == "sound":
        assert not seen
    else:
        (preview,) = seen
        height, width = shipped.shape[-3:-1]
        assert preview.dtype == np.uint8
        assert preview.shape[0] * width == preview.shape[1] * height
    if shipped.sound is not None:
        first, again, other = (found[shipped.sound] for found in answers)
        assert (first.dtype, first.ndim) == (np.float32, 1)
        assert np.isfinite(first).all()
        np.testing.assert_array_equal(first, again)
        assert (first != other).any()
