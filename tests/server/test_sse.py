"""The bytes of a stream, read without any client's help."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server.running import Server, ask, words

PATH = "/v1/chat/completions"


def read(response: httpx.Response) -> list[tuple[str, str]]:
    """Events as (name, data); the name is `message` where none is given."""
    events = []
    for block in response.read().decode().split("\n\n"):
        if block:
            fields = dict(line.split(": ", 1) for line in block.split("\n"))
            events.append((fields.pop("event", "message"), fields.pop("data")))
            assert not fields
    return events


def chunks(server: Server, body: dict[str, Any]) -> list[dict[str, Any]]:
    with server.streaming(PATH, body | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        events = read(response)
    assert events[-1] == ("message", "[DONE]")
    return [json.loads(data) for _, data in events[:-1]]


BODIES = {
    "text": ask("one two three"),
    "text and audio": ask("one two", modalities=["text", "audio"]),
    "usage": ask("one two", stream_options={"include_usage": True}),
    "two answers": ask("one two", n=2),
}


@pytest.mark.parametrize("name", BODIES)
def test_every_chunk_is_complete_and_of_one_answer(server: Server, name: str) -> None:
    all_of_it = chunks(server, BODIES[name])
    for chunk in all_of_it:
        assert {"id", "object", "created", "model", "choices"} <= chunk.keys()
        assert chunk["object"] == "chat.completion.chunk"
        for choice in chunk["choices"]:
            assert {"index", "delta", "finish_reason", "logprobs"} == choice.keys()
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in all_of_it}) == 1


@pytest.mark.parametrize("name", BODIES)
def test_each_answer_begins_with_its_role_and_ends_with_one_reason(server: Server, name: str) -> None:
    all_of_it = chunks(server, BODIES[name])
    for index in range(BODIES[name].get("n", 1)):
        mine = [choice for chunk in all_of_it for choice in chunk["choices"] if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in mine] == [None] * (len(mine) - 1) + ["stop"]
        assert mine[-1]["delta"] == {}


def test_usage_is_one_last_chunk_and_null_before(server: Server) -> None:
    *before, last = chunks(server, BODIES["usage"])
    assert all(chunk["usage"] is None for chunk in before)
    assert (last["choices"], last["usage"]) == ([], {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4})
    assert all("usage" not in chunk for chunk in chunks(server, BODIES["text"]))


def test_text_comes_as_it_is_made(server: Server) -> None:
    deltas = [choice["delta"].get("content") for chunk in chunks(server, BODIES["text"]) for choice in chunk["choices"]]
    assert deltas == ["", "one", " two", " three", None]


def test_a_fault_in_mid_stream_is_an_event_of_its_own_and_the_last(server: Server) -> None:
    with server.streaming(PATH, ask(f"!raise {words(5)}", stream=True)) as response:
        events = read(response)
    name, data = events[-1]
    assert name == "error"
    error = json.loads(data)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("server_error", "stage_failed")
    assert all(name == "message" and data != "[DONE]" for name, data in events[:-1])


def test_a_fault_before_the_first_word_has_its_status(server: Server) -> None:
    assert server.chat("!first", stream=True).status_code == 500
    assert server.chat("!request", stream=True).status_code == 400


def test_a_fault_in_mid_sound_is_an_event_where_there_are_events(server: Server) -> None:
    body = ask("one two three !cut five six", modalities=["text", "audio"], stream=True)
    with server.streaming(PATH, body) as response:
        assert read(response)[-1][0] == "error"
    with server.streaming("/v1/audio/speech", {"input": "one two three !cut", "stream_format": "sse"}) as response:
        assert read(response)[-1][0] == "error"


def test_a_fault_in_mid_sound_breaks_a_plain_body_off(server: Server) -> None:
    body = {"input": "one two three !cut five", "stream_format": "audio", "response_format": "wav"}
    with server.streaming("/v1/audio/speech", body) as response, pytest.raises(httpx.RemoteProtocolError):
        response.read()


def test_a_fault_before_the_first_sound_has_its_status(server: Server) -> None:
    for form in ("audio", "sse"):
        assert server.speech("!mute one", stream_format=form).status_code == 500


def test_letters_outside_ascii_are_whole(server: Server) -> None:
    said = "größer 你好 🙂"
    deltas = [choice["delta"].get("content", "") for chunk in chunks(server, ask(said)) for choice in chunk["choices"]]
    assert "".join(deltas) == said
