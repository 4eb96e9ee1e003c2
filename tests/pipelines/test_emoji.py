"""pipelines/emoji.omni: what it paints, judged by a network that was trained on the font's pictures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from omnic.diagnostics import Sink
from omnic.driver import BuildResult, build
from omnic.runtime.pipeline import Pipeline
from tests.pipelines.built import PIPELINES, Ask, built, running, training

JUDGE = Path(__file__).parents[1] / "data/emoji_judge.safetensors"
NAMES = (
    "red heart", "broken heart", "skull", "robot", "thumbs up", "dog face", "panda", "octopus", "sunflower", "cactus",
    "red apple", "pizza", "hot beverage", "rainbow", "automobile", "rocket", "soccer ball", "guitar", "light bulb",
    "key",
)  # fmt: skip
STEPS = 4  # fewer than the default, for the time it takes


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    return built("emoji", tmp_path_factory.mktemp("emoji") / "build")


@pytest.fixture(scope="module")
def ask(made: BuildResult) -> Iterator[Ask[Any]]:
    with running(made.out, "Emoji") as ask:
        yield ask


def paint(ask: Ask[Any], prompts: Sequence[str], **given: Any) -> list[NDArray[np.uint8]]:
    """A picture of each, all asked for at once."""

    async def work(emoji: Any) -> list[NDArray[np.uint8]]:
        flows = [emoji.images_generations_image(prompt=prompt, seed=7, **given) for prompt in prompts]
        answers = await asyncio.gather(*(flow.result() for flow in flows))
        return [answer["image"] for answer in answers]

    found: list[NDArray[np.uint8]] = ask(work)
    return found


def judged(pictures: Sequence[NDArray[np.uint8]]) -> list[str]:
    """The name of the emoji that the judge sees in each picture."""
    with training():
        import captions
        import judge

        names = [entry.name for entry in captions.load()]
        seen = judge.load(JUDGE)(torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1)
    return [names[i] for i in seen.argmax(1).tolist()]


def test_names_are_painted_so_that_they_are_recognised(ask: Ask[Any]) -> None:
    seen = judged(paint(ask, NAMES, steps=STEPS))
    wrong = [f"{name}: {other}" for name, other in zip(NAMES, seen, strict=True) if name != other]
    assert len(wrong) <= 1, wrong


def test_descriptions_that_were_never_trained_on_are_painted_too(ask: Ask[Any]) -> None:
    with training():
        import captions

        chosen = [entry for entry in captions.load() if entry.name in NAMES[:10]]
    seen = judged(paint(ask, [entry.test[0] for entry in chosen], steps=STEPS))
    right = [entry.name == other for entry, other in zip(chosen, seen, strict=True)]
    assert sum(right) >= 0.8 * len(right)


def test_with_its_defaults_it_paints_the_font_s_red_heart(ask: Ask[Any]) -> None:
    (heart,) = paint(ask, ["a red heart"])
    assert (heart.shape, heart.dtype) == ((64, 64, 3), np.uint8)
    assert judged([heart]) == ["red heart"]
    red, green, blue = (int(c) for c in heart[30, 30])
    assert red > 200
    assert max(green, blue) < 100
    assert heart[:3].min() > 230, "the background is white"


def test_noise_is_no_emoji_in_particular() -> None:
    """The judge above can fail: pictures that nobody painted are not named as asked."""
    noise = np.random.default_rng(0).integers(0, 256, (len(NAMES), 64, 64, 3), np.uint8)
    assert sum(a == b for a, b in zip(NAMES, judged(list(noise)), strict=True)) <= 2


def test_a_picture_is_the_same_alone_beside_others_and_again(ask: Ask[Any]) -> None:
    prompts = ("a red heart", "an orange cat on a sunny day", "key")
    alone = [paint(ask, [prompt], steps=2)[0].tobytes() for prompt in prompts]
    together = [picture.tobytes() for picture in paint(ask, prompts, steps=2)]
    assert together == alone
    assert paint(ask, prompts[:1], steps=2)[0].tobytes() == alone[0]


def test_what_the_weights_take_is_what_was_planned(made: BuildResult, ask: Ask[Any]) -> None:
    async def work(emoji: Pipeline) -> dict[str, int]:
        modules = {"read": emoji.read._transform._model, "paint": emoji.paint._denoiser._module}  # type: ignore[attr-defined]
        return {
            name: sum(t.nbytes for t in [*module.parameters(), *module.buffers()] if t.is_floating_point())
            for name, module in modules.items()
        }

    plan = made.planned
    for name, held in ask(work).items():
        cost = plan.context.parts[name].cost
        assert cost.weight_bytes == held, name


def test_the_measurement_paints_what_omnic_paints(ask: Ask[Any]) -> None:
    """pipelines/emoji/train/measure.py has a sampler of its own, so that it can paint hundreds at once."""
    from safetensors.torch import load_file

    from omnic.runtime.families.emoji_network import Config, EmojiDiT

    config = json.loads((PIPELINES / "emoji/weights/config.json").read_text())
    config["default"]["steps"] = 3
    network = EmojiDiT(Config(**config["model"]))
    weights = load_file(PIPELINES / "emoji/weights/model.safetensors")
    network.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    with training():
        import measure
        import words

        encoder = words.Encoder(words.encoder_folder(None), "cpu")
        states, empty = encoder.encode(["rocket", "a red heart"]), encoder.encode([""])
        measured = measure.paint(network.eval(), states, empty, [7, 7], config)
    for one, picture in zip(measured, paint(ask, ["rocket", "a red heart"], steps=3, guidance=1.5), strict=True):
        pixels = one.add(1).mul(127.5).permute(1, 2, 0).numpy()
        assert np.abs(pixels - picture).mean() < 0.5  # the states were rounded to float16 there


def test_a_picture_for_each_sentence_is_more_than_an_answer_holds(tmp_path: Path) -> None:
    """A stream that is pinned on an edge from an input counts, and is told where it cannot be served."""
    source = (PIPELINES / "emoji.omni").read_text().replace("emoji/weights", str(PIPELINES / "emoji/weights"))
    changed = re.sub(r"(prompt +-> read.text)", r"\1 { stream = sentence }", source)
    assert changed != source
    (tmp_path / "pages.omni").write_text(changed)
    sink = Sink()
    assert build(tmp_path / "pages.omni", tmp_path / "build", sink) is None
    (error,) = sink.diagnostics
    assert (error.id, error.headline) == (
        "several-values",
        "an answer of `images.generations` holds one picture; `image` comes once a sentence",
    )
    assert error.primary is not None
    assert error.primary.span.text.startswith(("image", "output image"))


# --- how it was trained -----------------------------------------------------------------------------------------------


def test_no_test_caption_was_trained_on() -> None:
    with training():
        import random

        import captions
        import words

        entries = captions.load()
        tests = {captions.plain(text) for entry in entries for text in entry.test}
        chance = random.Random(0)
        told = {captions.plain(text) for entry in entries for text in words.variants(entry, 4, tests, chance)}
    assert len(entries) >= 200
    assert all(len(entry.train) == 8 and len(entry.test) == 4 for entry in entries)
    assert not told & tests


def test_captions_that_break_the_rules_are_refused() -> None:
    with training():
        import captions

        heart, other = (next(e for e in captions.load() if e.name == name) for name in ("red heart", "rocket"))
    assert captions.broken([heart, other]) == []
    leaking = replace(heart, test=("A Red-Heart!", *heart.test[1:]))
    assert captions.broken([leaking, other]) == ["`A Red-Heart!` tests and trains"]
    shared = replace(other, train=("Love.", *other.train[1:]))
    assert captions.broken([heart, shared])[0].startswith("`love` is said of")
    assert captions.broken([replace(heart, test=heart.test[:3])]) == ["❤️ has 8 + 3 captions"]


@pytest.mark.slow
def test_the_training_script_goes_through(tmp_path: Path) -> None:
    """In a small way: every file is written, and none of it is worth shipping."""
    import subprocess
    import sys

    np.save(tmp_path / "pictures.npy", np.random.default_rng(0).integers(0, 256, (8, 64, 64, 3), np.uint8))
    script = PIPELINES / "emoji/train/train.py"
    command = [sys.executable, script, "--smoke", "--out", tmp_path / "out", "--pictures", tmp_path / "pictures.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    metrics = json.loads((tmp_path / "out/metrics.json").read_text())
    assert (metrics["emoji"], metrics["steps"], metrics["names_pictures"]) == (8, 10, 32)
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert written == {"model.safetensors", "config.json", "judge.safetensors", "metrics.json", "sheet.png"}
