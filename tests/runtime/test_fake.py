"""The stand-ins behave like the stages they stand in for."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic import manifest
from omnic.runtime import lock
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.fake import ARGUMENTS, SILENT, FakePipeline, Fault, Script, write
from omnic.runtime.flow import Finished, Flow, Piece
from omnic.runtime.pipeline import Build
from tests.assistant import assistant


def pipeline(build: Path, script: Script | None = None) -> FakePipeline:
    made = type("Assistant", (FakePipeline,), {"script": script or Script()})(
        Build.open(write(build, assistant(), script))
    )
    assert isinstance(made, FakePipeline)
    return made


def messages(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def result(flow: Flow) -> dict[str, Any]:
    return asyncio.run(flow.result())


def test_a_fake_build_is_a_build(tmp_path: Path) -> None:
    write(tmp_path, assistant())
    lock.verify(tmp_path)
    assert manifest.read(tmp_path).endpoints == assistant().endpoints


def test_text_is_said_back_word_by_word(tmp_path: Path) -> None:
    flow = pipeline(tmp_path).chat_completions_reply(messages=messages("one two three"), seed=3)

    async def go() -> list[Piece | Finished]:
        return [event async for event in flow]

    *pieces, finished = asyncio.run(go())
    assert [p.value for p in pieces if isinstance(p, Piece)] == ["one", " two", " three"]
    assert isinstance(finished, Finished)
    assert (finished.seed, finished.finish_reason, finished.completion_tokens) == (3, "stop", 3)


def test_it_stops_at_max_tokens(tmp_path: Path) -> None:
    answer = result(pipeline(tmp_path).chat_completions_reply(messages=messages("one two three"), max_tokens=2))
    assert (answer["reply"], answer["finished"].finish_reason) == ("one two", "length")


def test_speech_is_as_long_as_its_text_and_slower_when_slow(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    whole, slow = (result(made.audio_speech_speech(text="abcde", speed=speed))["speech"] for speed in (1.0, 0.5))
    assert (len(whole), len(slow)) == (1200, 2400)
    assert np.abs(whole).max() == pytest.approx(0.5, abs=0.01)


def test_streamed_speech_is_whole_speech(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    streamed = result(made.chat_completions_reply_speech(messages=messages("one two three")))["speech"]
    whole = result(made.audio_speech_speech(text="one two three"))["speech"]
    np.testing.assert_allclose(streamed, whole, atol=1e-6)


def test_a_slice_runs_its_stages_and_no_others(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    result(made.chat_completions_reply(messages=messages("hello")))
    assert [stage.stats()["requests"] for stage in made.stages] == [1, 0]
    result(made.audio_speech_speech(text="hello"))
    assert [stage.stats()["requests"] for stage in made.stages] == [1, 1]


def test_what_cannot_be_spoken_is_noted(tmp_path: Path) -> None:
    answer = result(pipeline(tmp_path).audio_speech_speech(text=SILENT))
    assert answer["speech"] is None
    assert answer["finished"].notes == {"speech": "nothing in the text can be spoken"}


def test_arguments_are_shown_when_asked_for(tmp_path: Path) -> None:
    answer = result(pipeline(tmp_path).chat_completions_reply(messages=messages(ARGUMENTS), seed=4, top_k=2))
    assert json.loads(answer["reply"]) == {"seed": 4, "top_k": 2}


FAULTS = [("raise", StageFailed), ("memory", StageFailed), ("request", RequestError)]


@pytest.mark.parametrize(("action", "error"), FAULTS)
def test_a_fault_strikes_the_request_that_asks_for_it(tmp_path: Path, action: str, error: type[Exception]) -> None:
    made = pipeline(tmp_path, Script(faults=(Fault("think", 1, action, when="!fault"),)))
    with pytest.raises(error):
        result(made.chat_completions_reply(messages=messages("!fault now")))
    assert result(made.chat_completions_reply(messages=messages("all well")))["reply"] == "all well"


def test_the_log_has_a_line_an_item(tmp_path: Path) -> None:
    made = pipeline(tmp_path, Script(log=str(tmp_path / "log")))
    result(made.chat_completions_reply_speech(messages=messages("one two"), seed=9))
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["speak 9 0", "speak 9 1", "think 9 0", "think 9 1"]
