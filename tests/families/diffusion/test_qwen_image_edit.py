"""Qwen-Image-Edit beside diffusers. Pictures are brought to 64² pixels here, not to 1024²: the models are tiny."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from diffusers.pipelines.qwenimage import pipeline_qwenimage_edit as theirs_module
from PIL import Image
from transformers import BatchFeature, Qwen2VLImageProcessorPil

from omnic.expr import Size
from omnic.runtime.families import qwen_image_edit as ours_module
from tests.families.diffusion.configs_qwen_image_edit import FIXTURES
from tests.families.diffusion.parity import Pair, generator

AREA = 64 * 64
PICTURE = np.random.default_rng(0).integers(0, 256, (40, 80, 3), dtype=np.uint8)


class Processor:
    """The part of Qwen2VLProcessor that the pipeline uses; the class itself needs torchvision."""

    def __init__(self, tokenizer: Any, config: Any) -> None:
        self._tokenizer, self._config = tokenizer, config
        self._pictures = Qwen2VLImageProcessorPil()

    def __call__(self, *, text: list[str], images: Any, padding: bool, return_tensors: str) -> BatchFeature:
        seen = self._pictures(images=[images], return_tensors="pt")
        count = int(seen["image_grid_thw"].prod()) // self._config.vision_config.spatial_merge_size**2
        marks = self._config.vision_start_token_id, self._config.image_token_id, self._config.vision_end_token_id
        before, after = text[0].split("<|vision_start|><|image_pad|><|vision_end|>")
        middle = [marks[0], *[marks[1]] * count, marks[2]]
        ids = [*self._tokenizer(before)["input_ids"], *middle, *self._tokenizer(after)["input_ids"]]
        tokens = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        return BatchFeature({**tokens, **seen})


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours_module, "AREA", AREA)
        real = theirs_module.calculate_dimensions
        patch.setattr(theirs_module, "calculate_dimensions", lambda area, ratio: real(AREA, ratio))
        made = Pair(FIXTURES["random--qwen_image_edit"], tmp_path_factory.mktemp("edit") / "model")
        made.pipe.processor = Processor(made.pipe.tokenizer, made.pipe.text_encoder.config)
        before = theirs_text(made).partition("<|vision_start|>")[0]
        made.pipe.prompt_template_encode_start_idx = len(made.pipe.tokenizer(before)["input_ids"])
        yield made


def theirs_text(pair: Pair) -> str:
    return str(pair.pipe.prompt_template_encode)


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize(("size", "steps"), [(Size(32, 32), 2), (Size(48, 32), 3)], ids=str)
def test_edits_alone_and_in_a_batch(pair: Pair, size: Size, steps: int, scale: float) -> None:
    prompts = ("make it blue", "a cat in its place, please")
    latents = pair.run("vae_encode", {"image": PICTURE})["latents"]
    jobs = []
    for seed, prompt in enumerate(prompts):
        given = {"text": prompt, "negative": "bad", "image": PICTURE}
        condition = pair.run("text_encoder", given)["embeds"]
        settings = {"size": size, "steps": steps, "guidance": scale}
        jobs.append(pair.prepared({"condition": condition, "reference": latents}, seed, **settings))
    for seed, (prompt, found) in enumerate(zip(prompts, pair.finished(*jobs), strict=True)):
        expected = pair.pipe(
            image=Image.fromarray(PICTURE), prompt=prompt, negative_prompt="bad", true_cfg_scale=scale,
            height=size.height, width=size.width, num_inference_steps=steps, generator=generator(seed),
            output_type="pt",
        ).images[0]  # fmt: skip
        torch.testing.assert_close(pair.decoded(found["latents"])[0, :, 0], expected, atol=1e-4, rtol=0)


def test_without_a_size_it_keeps_that_of_the_picture(pair: Pair) -> None:
    latents = pair.run("vae_encode", {"image": PICTURE})["latents"]
    condition = pair.run("text_encoder", {"text": "as it is", "negative": None, "image": PICTURE})["embeds"]
    job = pair.prepared({"condition": condition, "reference": latents}, size=None, steps=1, guidance=1.0)
    assert pair.decoded(pair.finished(job)[0]["latents"]).shape[-2:] == (32, 96)
