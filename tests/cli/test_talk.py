"""`omnic chat URL`, against a server of a few lines that answers as OpenAI's does."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.cli.conftest import Omnic


class Answering(BaseHTTPRequestHandler):
    """Answers with the number of messages it got, in two deltas; to `fail` and `break` as servers fail."""

    asked: list[dict[str, Any]]

    def do_GET(self) -> None:
        self._reply(200, "application/json", json.dumps({"data": [{"id": "assistant"}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        said = body["messages"][-1]["content"]
        if said == "fail":
            self._reply(400, "application/json", json.dumps({"error": {"message": "too long", "code": "x"}}))
            return
        deltas = [
            {"role": "assistant", "content": ""},
            {"content": "I heard "},
            {"content": f"{len(body['messages'])}."},
        ]
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        if said == "break":
            events[2:] = [{"error": {"message": "the worker died"}}]
        self._reply(
            200, "text/event-stream", "".join(f"data: {json.dumps(e)}\n\n" for e in events) + "data: [DONE]\n\n"
        )

    def _reply(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    asked: list[dict[str, Any]] = []
    handler = type("Handler", (Answering,), {"asked": asked})
    with HTTPServer(("127.0.0.1", 0), handler) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}", asked
        serving.shutdown()
        thread.join()


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_conversation_goes_on(server: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    url, asked = server
    type_in(monkeypatch, "Hello\n\nAgain\n")
    assert omnic("chat", url) == (0, "I heard 1.\nI heard 3.\n", "")
    assert [m["content"] for m in asked[1]["messages"]] == ["Hello", "I heard 1.", "Again"]
    assert asked[0]["model"] == "assistant"


def test_new_starts_over_and_keeps_the_system_prompt(
    server: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch, omnic: Omnic
) -> None:
    url, asked = server
    type_in(monkeypatch, "Hello\n/new\nAgain\n")
    assert omnic("chat", f"{url}/v1/", "--system", "Be brief.").out == "I heard 2.\nI heard 2.\n"
    assert asked[1]["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(("said", "reason"), [("fail", "too long"), ("break", "the worker died")])
def test_a_turn_that_fails_is_forgotten(
    said: str, reason: str, server: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch, omnic: Omnic
) -> None:
    url, asked = server
    type_in(monkeypatch, f"{said}\nHello\n")
    done = omnic("chat", url)
    assert (done.status, done.err) == (0, f"omnic: {reason}\n")
    assert len(asked[1]["messages"]) == 1


def test_nobody_there(omnic: Omnic) -> None:
    done = omnic("chat", "http://127.0.0.1:1")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("omnic: no model to talk to at http://127.0.0.1:1: ")
    assert done.err.count("\n") == 1
