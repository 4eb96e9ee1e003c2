"""HTTP around the answers: what is refused and how, ids, seeds, and the pages of facts."""

from __future__ import annotations

import html
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.contract import bodies
from tests.server.running import HELLO, Server, ask

CHAT, SPEECH = "/v1/chat/completions", "/v1/audio/speech"


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert "Traceback" not in error["message"]
    return dict(error)


# --- outside the contract ---------------------------------------------------------------------------------------------


def encodable(body: Any) -> bool:
    return "Infinity" not in str(body) and "inf" not in str(body)


@pytest.mark.parametrize("name", [name for name, (body, _) in bodies.BAD_CHAT.items() if encodable(body)])
def test_a_bad_chat_body_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_CHAT[name]
    assert error_of(server.post(CHAT, body), 400)["param"] == field


@pytest.mark.parametrize("name", [name for name, (body, _) in bodies.BAD_SPEECH.items() if encodable(body)])
def test_a_bad_speech_body_is_400_and_names_its_field(server: Server, name: str) -> None:
    body, field = bodies.BAD_SPEECH[name]
    assert error_of(server.post(SPEECH, body), 400)["param"] == field


NOT_JSON = {
    "empty": b"",
    "text": b"hello",
    "cut short": b'{"messages": [',
    "two of them": b"{}{}",
    "single quotes": b"{'a': 1}",
    "NaN": b'{"temperature": NaN}',
    "Infinity": b'{"temperature": Infinity}',
    "1e999": b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
    "not UTF-8": b'{"input": "\xff\xfe"}',
    "half a surrogate pair": b'{"input": "\\ud800", "messages": []}',
    "very deep": b"[" * 100_000,
    "a NUL": b"\x00",
}


@pytest.mark.parametrize("path", [CHAT, SPEECH])
@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_not_json_is_400(server: Server, path: str, name: str) -> None:
    headers = {"content-type": "application/json"}
    error_of(server.client.post(f"{server.url}{path}", content=NOT_JSON[name], headers=headers), 400)


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_another_content_type_is_415(server: Server, kind: str) -> None:
    error_of(server.client.post(f"{server.url}{CHAT}", content=b"{}", headers={"content-type": kind}), 415)


def test_a_compressed_body_is_415(server: Server) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    error_of(server.client.post(f"{server.url}{CHAT}", content=b"{}", headers=headers), 415)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_413_before_it_is_read(server: Server, declared: bool) -> None:
    block = b"x" * 65536

    def endless() -> Iterator[bytes]:
        yield b'{"input": "'
        for _ in range(200):
            yield block

    content = b"".join(endless()) if declared else endless()
    try:
        response = server.client.post(
            f"{server.url}{SPEECH}", content=content, headers={"content-type": "application/json"}
        )
    except httpx.WriteError:
        return  # the server closed the connection while the rest was on its way
    error_of(response, 413)


@pytest.mark.parametrize("body", [{"k" * 500_000: 1}, {"voice": "v" * 500_000}, {"model": "m" * 500_000}])
def test_an_error_quotes_no_more_of_a_request_than_it_takes(server: Server, body: dict[str, Any]) -> None:
    response = server.post(SPEECH, {"input": "x"} | body)
    error = error_of(response, 404 if "model" in body else 400)
    assert len(response.content) < 2000
    assert error["param"]


def test_a_path_is_a_line_of_the_log_and_no_more(server: Server) -> None:
    server.get("/v1/models/x%0A%1B[31mforged%E2%80%A8")
    assert server.line(r"GET (\S+) 404")
    line = server.line(r"GET /v1/models/x(\S*) 404")
    assert line[1] == "%0A%1B[31mforged%E2%80%A8"


def test_an_unknown_path_is_404(server: Server) -> None:
    assert error_of(server.get("/v1/nothing"), 404)["message"] == "there is no /v1/nothing"


def test_an_endpoint_that_the_build_does_not_serve_is_404_by_name(server: Server) -> None:
    assert "does not serve `embeddings`" in error_of(server.post("/v1/embeddings", {}), 404)["message"]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", CHAT), ("DELETE", SPEECH), ("POST", "/v1/models"), ("PUT", "/health")]
)
def test_another_method_is_405_and_says_which(server: Server, method: str, path: str) -> None:
    response = server.client.request(method, f"{server.url}{path}")
    error_of(response, 405)
    assert response.headers["allow"]


# --- ids and seeds ----------------------------------------------------------------------------------------------------


def test_a_request_id_is_kept_or_made_up(server: Server) -> None:
    assert server.post(CHAT, ask("x"), headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    ids = {server.post(CHAT, ask("x")).headers["x-request-id"] for _ in range(2)}
    assert len(ids) == 2


@pytest.mark.parametrize("id", ["", "two words", "x" * 129, "<b>", "a\tb"])
def test_a_request_id_that_would_not_do_is_replaced(server: Server, id: str) -> None:
    assert server.post(CHAT, ask("x"), headers={"x-request-id": id}).headers["x-request-id"].startswith("req-")


def test_errors_have_a_request_id_too(server: Server) -> None:
    for response in (server.post(CHAT, {}), server.get("/nothing")):
        assert response.headers["x-request-id"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_seed_is_reported_given_or_drawn(server: Server, stream: bool) -> None:
    assert server.post(CHAT, ask("x", seed=41, stream=stream)).headers["x-omnic-seed"] == "41"
    drawn = {server.post(CHAT, ask("x", stream=stream)).headers["x-omnic-seed"] for _ in range(3)}
    assert len(drawn) == 3
    assert server.speech("x", seed=5).headers["x-omnic-seed"] == "5"


def test_a_drawn_seed_is_the_one_that_was_used(server: Server) -> None:
    response = server.chat("!arguments")
    said = response.json()["choices"][0]["message"]["content"]
    assert f'"seed": {response.headers["x-omnic-seed"]}' in said


# --- facts ------------------------------------------------------------------------------------------------------------


def test_health_and_readiness(server: Server) -> None:
    assert server.get("/health").json() == {"status": "alive"}
    assert server.get("/ready").json() == {"status": "ready"}


def test_the_schema_is_the_pipeline_s(server: Server) -> None:
    schema = server.get("/openapi.json").json()
    body = schema["paths"][CHAT]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["max_tokens"]["maximum"] == 1024
    assert "/v1/embeddings" not in schema["paths"]


def test_the_page_to_read_needs_nobody_else(server: Server) -> None:
    page = server.get("/docs")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    addresses = re.findall(r"""(?:src|href)=["']([^"']*)""", page.text)
    assert addresses
    assert not [a for a in addresses if a != "data:," and server.get(f"/{a}").status_code != 200]
    assert not re.search(r"https?:|url\(|@import|import ", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert server.client.get(server.url, follow_redirects=True).text == page.text


@pytest.mark.parametrize("path", [CHAT, SPEECH])
def test_the_page_has_every_field_and_a_request_that_is_taken(server: Server, path: str) -> None:
    operation = server.get("/openapi.json").json()["paths"][path]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    section = next(s for s in server.get("/docs").text.split("<section>") if f"POST {path}" in s)
    for name, field in schema["properties"].items():
        for shown in (f"{name}.{inner}" for inner in field["properties"]) if "properties" in field else (name,):
            assert section.count(f"<code>{shown}</code>") == 1
    assert "number in 0.5..2.0" in section
    [body] = re.findall(r"<textarea[^>]*>(.*?)</textarea>", section, re.DOTALL)
    assert server.post(path, json.loads(html.unescape(body))).status_code == 200


@pytest.mark.parametrize("path", [CHAT, SPEECH])
def test_what_the_page_offers_is_taken_too(server: Server, path: str) -> None:
    section = next(s for s in server.get("/docs").text.split("<section>") if f"POST {path}" in s)
    body = json.loads(html.unescape(re.findall(r"<textarea[^>]*>(.*?)</textarea>", section, re.DOTALL)[0]))
    pressed = re.findall(r'data-name="([^"]*)" data-value="([^"]*)"', section)
    assert len(pressed) > 5
    for name, value in pressed:
        outer, _, inner = name.partition(".")
        field = json.loads(html.unescape(value))
        body[outer] = body.get(outer, {}) | {inner: field} if inner else field
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text


def test_voices_are_listed(server: Server) -> None:
    assert server.get("/v1/audio/voices").json() == {"voices": ["default"]}


def test_a_connection_is_used_again(server: Server) -> None:
    with httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            assert client.post(CHAT, json={"messages": HELLO}).status_code == 200
            assert client.post(CHAT, json={}).status_code == 400


def test_half_a_request_holds_nobody_up(server: Server) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as idle:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
        idle.sendall(head.encode() + b"{")
        began = time.monotonic()
        assert server.chat("hello").status_code == 200
        assert time.monotonic() - began < 1
