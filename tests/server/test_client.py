"""OpenAI's own client, unchanged, against the server."""

from __future__ import annotations

import base64
import io
import json
import wave

import numpy as np
import openai
import pytest

from omnic.runtime.fake import ARGUMENTS, SILENT
from tests.server.running import Server, words

MODEL = "assistant"
HELLO: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]


def samples_of(data: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24000, 1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), "<i2")


# --- chat -------------------------------------------------------------------------------------------------------------


def test_a_whole_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    [choice] = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "hello there", "stop")
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", MODEL, "chatcmpl-")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (2, 2, 4)


def test_a_streamed_answer_is_the_whole_one_in_deltas(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hello there"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["stop"]
    assert chunks[-1].usage is not None
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 4)


def test_an_answer_cut_at_its_limit_says_so(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=HELLO, max_completion_tokens=1)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("hello", "length")


def test_what_is_set_reaches_the_pipeline(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": ARGUMENTS}],
        temperature=0.5,
        top_p=0.25,
        stop=["END"],
        seed=7,
        max_tokens=100,
        user="bo",
        metadata={"a": "b"},
        store=False,
        extra_body={"top_k": 3},
    )
    expected = {"temperature": 0.5, "top_p": 0.25, "top_k": 3, "stop": ["END"], "seed": 7, "max_tokens": 100}
    assert json.loads(answer.choices[0].message.content or "") == expected


def test_several_answers_have_a_seed_each(client: openai.OpenAI) -> None:
    asked: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": ARGUMENTS}]
    answer = client.chat.completions.create(model=MODEL, messages=asked, n=3, seed=10)
    assert [json.loads(c.message.content or "")["seed"] for c in answer.choices] == [10, 11, 12]
    assert [c.index for c in answer.choices] == [0, 1, 2]


def test_several_answers_stream_side_by_side(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model=MODEL, messages=HELLO, n=2, stream=True)
    said, ends = {0: "", 1: ""}, {}
    for chunk in stream:
        for choice in chunk.choices:
            said[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert said == {0: "hello there", 1: "hello there"}
    assert ends == {0: "stop", 1: "stop"}


def test_a_spoken_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=HELLO, modalities=["text", "audio"], audio={"voice": "default", "format": "wav"}
    )
    message = answer.choices[0].message
    assert message.audio is not None
    assert (message.content, message.audio.transcript) == ("hello there", "hello there")
    assert len(samples_of(base64.b64decode(message.audio.data))) == len("hello there") * 240


def test_a_streamed_spoken_answer(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=MODEL,
        messages=HELLO,
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "pcm16"},
        stream=True,
    )
    audio = [choice.delta.audio for chunk in stream for choice in chunk.choices if choice.delta.audio]
    assert "".join(a.transcript or "" for a in audio) == "hello there"
    assert len(b"".join(base64.b64decode(a.data or "") for a in audio)) == 2 * len("hello there") * 240
    assert len({a.id for a in audio[:-1]}) == 1
    assert audio[-1].expires_at


def test_an_answer_that_cannot_be_spoken_says_why(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": SILENT}],
        modalities=["text", "audio"],
        audio={"voice": "default", "format": "wav"},
    )
    [choice] = answer.choices
    assert choice.message.audio is None
    assert (choice.model_extra or {})["notes"] == {"audio": "nothing in the text can be spoken"}


def test_asking_for_text_alone_never_speaks(server: Server, client: openai.OpenAI) -> None:
    before = server.metrics()[("omnic_stage_requests_total", "speak")]
    client.chat.completions.create(model=MODEL, messages=HELLO)
    assert server.metrics()[("omnic_stage_requests_total", "speak")] == before


# --- speech -----------------------------------------------------------------------------------------------------------

MAGIC = {"mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3"), "opus": (b"OggS",), "flac": (b"fLaC",), "wav": (b"RIFF",),
         "aac": (b"\xff\xf1", b"\xff\xf9"), "pcm": (b"",)}  # fmt: skip
TYPES = {"mp3": "audio/mpeg", "opus": "audio/ogg", "flac": "audio/flac", "wav": "audio/wav", "aac": "audio/aac",
         "pcm": "audio/pcm"}  # fmt: skip


@pytest.mark.parametrize("format", TYPES)
def test_bytes_and_type_are_of_the_format_asked_for(client: openai.OpenAI, format: str) -> None:
    reply = client.audio.speech.create(model=MODEL, voice="default", input="hello there", response_format=format)  # type: ignore[arg-type]
    assert reply.response.headers["content-type"].split(";")[0] == TYPES[format]
    assert reply.content.startswith(MAGIC[format])
    assert int(reply.response.headers["content-length"]) == len(reply.content)


def test_mp3_is_the_default(client: openai.OpenAI) -> None:
    reply = client.audio.speech.create(model=MODEL, voice="default", input="hello there")
    assert reply.response.headers["content-type"] == "audio/mpeg"


def test_a_whole_wav_has_exact_sizes(client: openai.OpenAI) -> None:
    reply = client.audio.speech.create(model=MODEL, voice="default", input="hello", response_format="wav")
    assert len(samples_of(reply.content)) == 5 * 240
    assert int.from_bytes(reply.content[4:8], "little") == len(reply.content) - 8


def test_a_streamed_wav_has_one_open_header_and_the_same_samples(client: openai.OpenAI) -> None:
    whole = client.audio.speech.create(model=MODEL, voice="default", input="hello", response_format="wav").content
    streaming = client.audio.speech.with_streaming_response
    with streaming.create(model=MODEL, voice="default", input="hello", response_format="wav") as reply:
        assert "content-length" not in reply.headers
        data = b"".join(reply.iter_bytes())
    assert (data.count(b"RIFF"), data[4:8]) == (1, b"\xff\xff\xff\xff")
    assert data[44:] == whole[44:]


def test_speed_changes_the_length(client: openai.OpenAI) -> None:
    fast = client.audio.speech.create(model=MODEL, voice="default", input="hello", response_format="pcm", speed=2.0)
    assert len(fast.content) == 2 * 5 * 120


def test_sound_as_events(server: Server) -> None:
    with server.streaming(
        "/v1/audio/speech", {"input": "hello", "response_format": "pcm", "stream_format": "sse"}
    ) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line.removeprefix("data: ")) for line in reply.iter_lines() if line]
    assert (
        b"".join(base64.b64decode(e["audio"]) for e in events[:-1])
        == server.speech("hello", response_format="pcm").content
    )
    assert {e["type"] for e in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"


def test_speech_never_thinks(server: Server) -> None:
    before = server.metrics()[("omnic_stage_requests_total", "think")]
    server.speech("hello")
    assert server.metrics()[("omnic_stage_requests_total", "think")] == before


# --- models -----------------------------------------------------------------------------------------------------------


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "omnic"


# --- exceptions -------------------------------------------------------------------------------------------------------


def test_an_unknown_model_is_not_found_on_every_endpoint(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=HELLO)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError):
        client.audio.speech.create(model="tts-9", voice="default", input="hello")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_a_value_outside_the_contract_is_a_bad_request(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"`max_tokens` must be in 1..1024, not 9999") as caught:
        client.chat.completions.create(model=MODEL, messages=HELLO, max_tokens=9999)
    assert (caught.value.param, caught.value.type) == ("max_tokens", "invalid_request_error")


def test_a_request_that_a_stage_refuses_is_a_bad_request_streamed_or_not(client: openai.OpenAI) -> None:
    asked: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "!request"}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model=MODEL, messages=asked, stream=stream)
        assert caught.value.code == "context_length_exceeded"


def test_text_that_cannot_be_spoken_is_a_bad_request_streamed_or_not(client: openai.OpenAI, server: Server) -> None:
    with pytest.raises(openai.BadRequestError, match="nothing in the text can be spoken") as caught:
        client.audio.speech.create(model=MODEL, voice="default", input=SILENT)
    assert (caught.value.param, caught.value.code) == ("input", "nothing_to_speak")
    for form in ("audio", "sse"):
        assert server.speech(SILENT, stream_format=form).status_code == 400


def test_a_fault_of_a_stage_is_a_server_error_without_its_trace(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "!raise a b c"}])
    assert caught.value.status_code == 500
    assert "ValueError" not in str(caught.value.body)
    assert "Traceback" not in caught.value.response.text


def test_a_machine_out_of_memory_is_for_later(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "!memory a b c"}])
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (503, "1")
    assert client.chat.completions.create(model=MODEL, messages=HELLO).choices[0].message.content == "hello there"


def test_a_fault_in_mid_stream_is_raised_after_what_came_before_it(client: openai.OpenAI) -> None:
    said: list[str] = []
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": f"!raise {words(5)}"}], stream=True
    )
    with pytest.raises(openai.APIError, match="stage `think` failed"):
        said.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(said) == "!raise word0 word1"
