"""Stable Diffusion XL beside diffusers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from omnic.catalog.resolve import ModelSource, resolve
from omnic.expr import Size
from omnic.runtime import families
from omnic.runtime.diffusion import Ask
from omnic.runtime.errors import RequestError
from omnic.runtime.home import Home
from omnic.runtime.weights import Checkpoint
from tests.families.diffusion.configs_sdxl import FIXTURES
from tests.families.diffusion.fixtures import Held
from tests.families.diffusion.parity import Pair, generator

PROMPTS = ("a cat", "two red cats on a mat, at noon", "so")
SIZE = Size(16, 24)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(FIXTURES["random--sdxl"], tmp_path_factory.mktemp("sdxl") / "model", add_watermarker=False)


def theirs(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, **more: Any) -> torch.Tensor:
    return pair.pipe(
        prompt=prompt, guidance_scale=scale, height=size.height, width=size.width, num_inference_steps=steps,
        generator=generator(seed), output_type="pt", **more,
    ).images[0]  # fmt: skip


def job(pair: Pair, prompt: str, seed: int, size: Size, steps: int, scale: float, *, negative: str | None = None,
        latents: Any = None, strength: float = 1.0) -> Any:  # fmt: skip
    embeds = pair.run("text_encoder", {"text": prompt, "negative": negative})["embeds"]
    settings = {"size": size, "steps": steps, "guidance": scale, "strength": strength}
    return pair.prepared({"condition": embeds, "latents": latents}, seed, **settings)


def same(pair: Pair, found: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(pair.decoded(found["latents"])[0], expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("size", "steps", "scale"), [(Size(32, 32), 2, 1.0), (SIZE, 5, 7.0)], ids=str)
def test_a_picture_alone(pair: Pair, size: Size, steps: int, scale: float) -> None:
    (found,) = pair.finished(job(pair, PROMPTS[0], 7, size, steps, scale))
    same(pair, found, theirs(pair, PROMPTS[0], 7, size, steps, scale))


@pytest.mark.parametrize(("negative", "scale"), [(None, 3.0), ("bad", 3.0), ("", 1.0)])
def test_three_in_a_batch(pair: Pair, negative: str | None, scale: float) -> None:
    jobs = [job(pair, prompt, i, SIZE, 2, scale, negative=negative) for i, prompt in enumerate(PROMPTS)]
    for i, (prompt, one) in enumerate(zip(PROMPTS, pair.finished(*jobs), strict=True)):
        same(pair, one, theirs(pair, prompt, i, SIZE, 2, scale, negative_prompt=negative))


@pytest.mark.parametrize(("steps", "strength"), [(2, 1.0), (5, 0.5)])
def test_from_a_picture(pair: Pair, steps: int, strength: float) -> None:
    import diffusers
    from PIL import Image

    picture = np.random.default_rng(1).integers(0, 256, (SIZE.height, SIZE.width, 3), dtype=np.uint8)
    latents = pair.run("vae_encode", {"image": picture}, seed=5, size=SIZE)["latents"]
    (found,) = pair.finished(job(pair, PROMPTS[0], 5, SIZE, steps, 2.0, latents=latents, strength=strength))
    pipe = diffusers.StableDiffusionXLImg2ImgPipeline(**pair.pipe.components, add_watermarker=False)
    pipe.set_progress_bar_config(disable=True)
    expected = pipe(
        prompt=PROMPTS[0], image=Image.fromarray(picture), strength=strength, num_inference_steps=steps,
        guidance_scale=2.0, generator=generator(5), output_type="pt",
    ).images[0]  # fmt: skip
    same(pair, found, expected)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("EulerAncestralDiscreteScheduler", {"timestep_spacing": "trailing"}),  # draws noise at each step
        ("HeunDiscreteScheduler", {}),  # takes each step in two
        ("DPMSolverMultistepScheduler", {"prediction_type": "v_prediction", "use_karras_sigmas": True}),
    ],
)
def test_other_schedulers(tmp_path: Any, kind: str, more: dict[str, Any]) -> None:
    """And a VAE with statistics of each channel, and a model that was not trained on zeros."""
    fixture = FIXTURES["random--sdxl"]
    betas = {name: fixture.components["scheduler"].config[name] for name in ("beta_start", "beta_end", "beta_schedule")}
    vae = fixture.components["vae"]
    channels = {"latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [1.0, 1.5, 0.8, 1.2]}
    other = {
        "scheduler": Held("diffusers", kind, {"_class_name": kind, **betas, **more}, tensors=False),
        "vae": replace(vae, config=vae.config | channels),
    }
    told = replace(fixture, components=fixture.components | other, settings={"force_zeros_for_empty_prompt": False})
    pair = Pair(told, tmp_path / "model", add_watermarker=False)
    found = pair.finished(*(job(pair, prompt, i, SIZE, 3, 4.0) for i, prompt in enumerate(PROMPTS[:2])))
    for i, one in enumerate(found):
        same(pair, one, theirs(pair, PROMPTS[i], i, SIZE, 3, 4.0))


def test_what_cannot_be_had_is_refused_by_name(pair: Pair) -> None:
    for field, given in {"prompt": ("the " * 80, None), "negative_prompt": ("a cat", "the " * 80)}.items():
        with pytest.raises(RequestError, match="its encoder takes 77") as refused:
            job(pair, given[0], 0, SIZE, 2, 1.0, negative=given[1])
        assert refused.value.field == field
    latents = pair.run("vae_encode", {"image": np.zeros((24, 16, 3), np.uint8)}, size=SIZE)["latents"]
    with pytest.raises(RequestError, match="leaves none to take") as refused:
        job(pair, "a cat", 0, SIZE, 4, 1.0, latents=latents, strength=0.2)
    assert refused.value.field == "strength"


def test_old_checkpoints_of_clip(pair: Pair, tmp_path: Path) -> None:
    """As released, its names begin with `text_model.`, and the numbers of its positions are saved, too."""
    folder = shutil.copytree(pair.checkpoint.root or "", tmp_path / "old")
    file = folder / "text_encoder/model.safetensors"
    tensors = {f"text_model.{name}": tensor for name, tensor in load_file(file).items()}
    save_file(tensors | {"text_model.embeddings.position_ids": torch.arange(77)[None]}, file)
    model = resolve(ModelSource("path", str(folder)), folder)
    assert model.parts["text_encoder"].cost == pair.model.parts["text_encoder"].cost
    old = families.load("sdxl").load(Checkpoint(pair.checkpoint.model, folder), "text_encoder", Home("float32"), print)
    ask = Ask(0, {"text": "a cat"}, {})
    with torch.inference_mode():
        found, expected = (one.run(ask)["embeds"].prompt["states"] for one in (old, pair.part("text_encoder")))
    assert torch.equal(found, expected)


def test_the_vae_is_held_in_float32(pair: Pair) -> None:
    """It overflows in half precision, and says so in its config."""
    for name in ("vae_decode", "vae_encode"):
        assert pair.model.parts[name].precisions == ("fp32",)
    assert pair.model.parts["denoiser"].precisions == ("fp32", "bf16")
