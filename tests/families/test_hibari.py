"""hibari: what it makes of phrases, and that the stage around it streams the same samples as the whole."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnic.contract.files import File
from omnic.manifest import Model
from omnic.runtime.decode import Decode, noise
from omnic.runtime.edges import Port
from omnic.runtime.errors import RequestError
from omnic.runtime.families import hibari
from omnic.runtime.flow import Flow
from omnic.runtime.segment import Sentences, Whole
from omnic.runtime.weights import Checkpoint, Missing, locate

MODEL = Model("voice", "pypi", "hibari-tts", "hibari", "onnx", {}, (File("hibari/assets/hibari.onnx", 7_936_868),))
ANSWER = """# Why the sky is blue

**Sunlight** holds all colours. Air [scatters](http://x.org) blue light more than red, e.g. 5.5 times more!

- So the sky is *blue*.
```python
print("not this")
```
Dr. Rayleigh found it."""


@pytest.fixture(scope="module")
def voice() -> hibari.Voice:
    return hibari.load(locate(MODEL, Path()), threads=1)


@pytest.fixture(scope="module")
def speak() -> Iterator[Decode]:
    stage = Decode("speak", locate(MODEL, Path()), part="synthesize", lanes=2, threads=1)
    stage.load(lambda *_: None)
    yield stage
    asyncio.run(stage.close())


def say(voice: hibari.Voice, text: str, speed: float = 1.0, seed: int = 0) -> Any:
    return voice.decode(text, noise(seed, 0), speed=speed, voice="heart")


def test_a_phrase_becomes_speech_at_24_khz(voice: hibari.Voice) -> None:
    sound = say(voice, "The quick brown fox jumps over the lazy dog.")
    assert sound.dtype == np.float32
    assert 2.0 < len(sound) / voice.rate_hz < 4.0
    assert 0.05 < np.abs(sound).max() <= 1.0


def test_the_same_seed_is_the_same_sound(voice: hibari.Voice) -> None:
    assert np.array_equal(say(voice, "Hello."), say(voice, "Hello."))
    assert not np.array_equal(say(voice, "Hello."), say(voice, "Hello.", seed=1))


def test_threads_do_not_disturb_each_other(voice: hibari.Voice) -> None:
    texts = [f"This is sentence number {n}." for n in range(6)]
    alone = [say(voice, text) for text in texts]
    together: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: together.update({n: say(voice, texts[n])})) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(alone[n], together[n]) for n in range(6))


def test_slower_is_longer_and_faster_shorter(voice: hibari.Voice) -> None:
    text = "The birch canoe slid on the smooth planks."
    normal = len(say(voice, text))
    assert len(say(voice, text, 0.5)) == pytest.approx(2 * normal, rel=0.1)
    assert len(say(voice, text, 2.0)) == pytest.approx(normal / 2, rel=0.1)


@pytest.mark.parametrize("text", ["你好", "🙂", "...", "?!", "—", "日本語。", "()"])
def test_what_english_cannot_say_has_no_samples(voice: hibari.Voice, text: str) -> None:
    assert len(say(voice, text)) == 0


@pytest.mark.parametrize(
    "text",
    [
        "9" * 60,
        "3," * 40,
        "1.2.3.4.5.6.7.8.9.10",
        "①②③ ٣٤ १२",
        "x" * 600,
        "a" * 50 + "-" + "b" * 50,
        "½ of 10² km",
        "\u0000\ud7ff",
    ],
)
def test_odd_text_is_read_or_left_out_but_never_raises(voice: hibari.Voice, text: str) -> None:
    assert len(say(voice, text)) < 90 * voice.rate_hz


@settings(deadline=None, max_examples=150)
@given(st.text(st.sampled_from("0123456789.,:/-–$£€%#&@*+=<>~^|'\"()[] abcXYZIV①٣²½éß中🙂’"), max_size=30))
def test_no_text_breaks_the_spelling(voice: hibari.Voice, text: str) -> None:
    voice._hibari.g2p(hibari.pronounceable(text))


def test_products_are_read_as_products() -> None:
    assert hibari.pronounceable("3 * 4 and 2*3 but a*b") == "3 × 4 and 2 × 3 but a*b"


def test_what_is_longer_than_a_word_is_read_in_parts() -> None:
    assert hibari.pronounceable("a" * 50) == "a" * 50  # letters alone are one word, whatever their number
    assert hibari.pronounceable("well-kept " * 20) == "well-kept " * 20
    compound = "state-of-the-art-" * 4 + "end"
    assert hibari.pronounceable(compound).split() == [compound[:40], compound[40:]]  # behind a hyphen
    for text in ("/" * 4096, "a@" * 2048, "1a" * 2048, "%A.B." * 800):
        parts = hibari.pronounceable(text).split()
        assert max(map(len, parts)) <= 40
        assert "".join(parts) == text


def test_a_very_long_phrase_is_spoken_in_parts_the_network_takes(voice: hibari.Voice) -> None:
    words = " ".join(["wonderful"] * 120)
    assert 60 < len(say(voice, words)) / voice.rate_hz < 180


@given(st.text(st.sampled_from("ab ˈ"), max_size=1500))
def test_long_phonemes_are_split_between_words(phonemes: str) -> None:
    parts = hibari.split(phonemes)
    assert all(0 < len(part) <= hibari.LONGEST for part in parts)
    assert "".join(parts).replace(" ", "") == phonemes.replace(" ", "")


def test_only_the_bundled_voice_speaks_and_no_other_is_fetched(
    voice: hibari.Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    with pytest.raises(ValueError, match="emma"):
        voice.decode("Hello.", noise(0, 0), speed=1.0, voice="emma")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hibari", None)
    with pytest.raises(Missing, match="hibari-tts"):
        hibari.load(Checkpoint(MODEL, Path()), threads=1)


def test_a_manifest_without_the_network_is_named() -> None:
    with pytest.raises(Missing, match=r"hibari\.onnx"):
        hibari.load(Checkpoint(replace(MODEL, files=()), Path()), threads=1)


# --- through the stage ------------------------------------------------------------------------------------------------


async def stream(speak: Decode, pieces: list[str], seed: int = 3, **options: Any) -> Any:
    """The sound of a text that another stage gives piece by piece."""
    flow, port = Flow(seed), Port()

    async def work() -> None:
        for piece in pieces:
            await port.room()
            port.send(piece)
            await asyncio.sleep(0)
        port.close()

    flow.run(work)
    flow.output("speech", speak.start(flow, text=port.channel(4, Sentences()), **options).audio)
    return (await flow.result())["speech"]


async def whole(speak: Decode, text: str, seed: int = 3, segmenter: Any = Sentences, **options: Any) -> Any:
    flow = Flow(seed)
    flow.output("speech", speak.start(flow, text=flow.given(text, segmenter()), **options).audio)
    return (await flow.result())["speech"]


@pytest.mark.parametrize(("size", "speed"), [(1, 1.0), (3, 1.3), (50, 0.9)])
def test_streamed_is_whole_sample_for_sample(speak: Decode, size: int, speed: float) -> None:
    async def main() -> None:
        streamed = await stream(speak, [ANSWER[at : at + size] for at in range(0, len(ANSWER), size)], speed=speed)
        assert np.array_equal(streamed, await whole(speak, ANSWER, speed=speed))
        assert np.array_equal(streamed, await whole(speak, ANSWER, segmenter=Whole, speed=speed))

    asyncio.run(main())


def test_a_request_sounds_the_same_among_others(speak: Decode) -> None:
    async def main() -> None:
        alone = await whole(speak, ANSWER)
        others = [whole(speak, f"Another voice says {n}. " * n, seed=n) for n in range(1, 4)]
        assert np.array_equal((await asyncio.gather(*others, whole(speak, ANSWER)))[-1], alone)

    asyncio.run(main())


def test_code_is_not_spoken_and_nothing_but_code_is_refused(speak: Decode) -> None:
    async def main() -> None:
        with_code = await whole(speak, "It works.\n```\nprint(1)\n```\n")
        assert np.array_equal(with_code, await whole(speak, "It works."))
        with pytest.raises(RequestError) as caught:
            await whole(speak, "```\nprint(1)\n```\n")
        assert caught.value.field == "input"

    asyncio.run(main())
