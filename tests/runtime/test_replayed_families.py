"""Every family whose calls can be captured: what it says its requests look like is what they look like, and a replay
gives what the call gave.

On a CPU a graph is a call of what it would record.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from omnic.catalog.resolve import ModelSource, resolve
from omnic.expr import Size
from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.carried import Carried
from omnic.runtime.denoise import Denoise
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Job, Latents, predict
from omnic.runtime.home import Home, moved
from omnic.runtime.stepping import Shape, replayed
from omnic.runtime.weights import Checkpoint

META = torch.device("meta")
GPU = torch.cuda.is_available()
HOME = Home("bfloat16", torch.device("cuda")) if GPU else Home("float32")
SHAPES = {
    "flux": Shape(Size(64, 32)),
    "flux_schnell": Shape(Size(64, 32)),
    "flux2": Shape(Size(64, 32)),
    "flux2_dev": Shape(Size(64, 32)),
    "sd3": Shape(Size(64, 32)),
    "sdxl": Shape(Size(64, 32)),
    "wan": Shape(Size(64, 32), 9),
    "wan_i2v": Shape(Size(64, 32), 9),
    "wan_ti2v": Shape(Size(64, 32), 9),
    "ltx2": Shape(Size(64, 96), 9),
    "cogvideox": Shape(Size(48, 64), 9),
    "cogvideox_5b": Shape(Size(48, 64), 9),
    "stable_audio": Shape(),
}


class Made:
    """A tiny denoiser of a kind that ships, and jobs for it."""

    def __init__(self, kind: str) -> None:
        family = next(
            name for name in ("flux2", "wan", "cogvideox", kind.removesuffix("_schnell")) if kind.startswith(name)
        )
        model = resolve(ModelSource("random", family, (("like", f"random/{kind}"),)), Path())
        made_up = Model("m", "random", family, model.family, model.format, model.config)
        self.checkpoint = checkpoint = Checkpoint(made_up, None)
        self.part, self.shape = model.parts["denoiser"], SHAPES[kind]

        def loaded(part: str) -> Any:
            return families.load(model.family).load(checkpoint, part, HOME, lambda done, total: None)

        self.denoiser: Any = loaded("denoiser")
        self._words: Any = loaded("text_encoder")
        self._negative = model.parts["text_encoder"].input("negative") is not None
        self._first = model.config["components"].get("vae", {}).get("config", {})

    def job(self, prompt: str, **more: Any) -> Job:
        inputs = {"text": prompt, **({"negative": "blue"} if self._negative else {})}
        settings = {key.name.replace(".", "_"): key.default for key in self.part.keys}
        settings |= {"size": self.shape.size, "frames": self.shape.frames, "steps": 4} | more
        if "seconds" in settings:
            settings["seconds"] = 0.01
        given: dict[str, Any] = {"condition": self._words.run(Ask(1, inputs, {}))["embeds"]}
        if (port := self.part.input("first_frame")) is not None and port.required:
            assert self.shape.size is not None
            time, space = (int(self._first[f"scale_factor_{axis}"]) for axis in ("temporal", "spatial"))
            sides = (self.shape.size.height // space, self.shape.size.width // space)
            shape = (1, int(self._first["z_dim"]), (self.shape.frames - 1) // time + 1, *sides)
            given["first_frame"] = Latents(torch.randn(shape, generator=torch.Generator().manual_seed(3)))
        job: Job = self.denoiser.prepare(Ask(1, moved(given, torch.device("cpu")), settings))
        job.move(HOME.device)
        return job


@pytest.fixture(autouse=True)
def _inference() -> Any:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("kind", SHAPES)
def test_no_model_looks_at_the_device_or_brings_other_numbers_from_the_host_each_time(kind: str) -> None:
    """On `meta`, a device that is not the host, on every machine."""
    made = Made(kind)
    calls: list[tuple[Any, Any, Any]] = []
    for module in made.denoiser.modules().values():
        forward = module.forward

        def noted(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
            calls.append((forward, args, kwargs))
            return forward(*args, **kwargs)

        module.forward = noted
    predict(made.denoiser.forward, [made.job("a red cat")])
    for module in made.denoiser.modules().values():
        module.to(META)
    for forward, args, kwargs in calls:
        args, kwargs, carried = moved(args, META), moved(kwargs, META), Carried(META)
        for _ in range(2):
            with carried.running():
                found = forward(*args, **kwargs)
        assert all(tensor.device == META for tensor in found)


@pytest.mark.parametrize("kind", SHAPES)
def test_requests_replay_what_warm_up_recorded(kind: str) -> None:
    made = Made(kind)
    jobs = [made.job("a red cat"), made.job("a dog that sleeps")]
    wanted = [predict(made.denoiser.forward, jobs[:count]) for count in (1, 2)]
    stepping = replayed("draw", made.denoiser, HOME.device, (made.shape,), 2)
    assert stepping is not None
    before = stepping.stats()
    found = [predict(made.denoiser.forward, jobs[:count]) for count in (1, 2)]
    for x, y in zip(tree_leaves(wanted), tree_leaves(found), strict=True):
        assert x.equal(y)
    after = stepping.stats()
    assert (after["graphs"], after["uncaptured"], after["capture_failures"]) == (before["graphs"], 0, 0)
    assert after["graph_replays"] > before["graph_replays"]


def test_a_stage_holds_a_graph_for_each_number_of_rows_before_it_is_ready() -> None:
    device = Device("gpu0" if GPU else "cpu")
    stage = Denoise(
        "draw", Made("flux").checkpoint, device, part="denoiser", dtype=HOME.dtype, inputs=("condition",),
        outputs=("latents",), slots=2, batch=2, engine="cuda_graph", sizes=("64x32",),
    )  # fmt: skip
    stage.load(lambda *told: None)
    stats = stage.stats()
    asyncio.run(stage.close())
    device.close()
    assert stats["engine_cuda_graph"] == 1
    assert stats["graphs"] == 3  # of 1, 2 and 4 rows: up to two jobs, with guidance and without
