"""A conversation in the terminal: `in_process` with a build, `over_http` with a server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from omnic.cli.refusal import Refusal

Messages = list[dict[str, str]]
Answer = Callable[[Messages], str]
"""Prints the answer to a conversation as it is made, and returns it. Raises Unanswered."""


class Unanswered(Exception):
    """This turn has no answer; the conversation can go on. The message is one line."""


def in_process(build: Path, system: str | None) -> None:
    """Talks to a build loaded into this process. Raises Refusal."""
    from omnic.cli.inprocess import contract, loaded
    from omnic.contract.validate import Violation, validate
    from omnic.runtime.errors import RequestError, StageFailed
    from omnic.runtime.flow import Piece

    manifest = contract(build)
    endpoint = manifest.endpoint("chat.completions")
    if endpoint is None:
        raise Refusal(f"{manifest.pipeline} serves no chat.completions, so there is nobody to talk to")
    text = dict(endpoint.outputs)["text"]

    async def turn(pipeline: Any, messages: Messages) -> str:
        said = ""
        try:
            accepted = validate(endpoint, {"messages": messages, "modalities": ["text"]}, manifest.requires)
            async for event in getattr(pipeline, accepted.slice.method)(**accepted.arguments):
                if isinstance(event, Piece) and event.output == text:
                    _say(event.value)
                    said += event.value
        except (Violation, RequestError, StageFailed) as error:
            raise Unanswered(str(error)) from None
        return said

    with asyncio.Runner() as runner:
        loading = loaded(build, manifest)
        pipeline = runner.run(loading.__aenter__())
        try:
            _converse(lambda messages: runner.run(turn(pipeline, messages)), system)
        finally:
            runner.run(loading.__aexit__(None, None, None))


def over_http(url: str, system: str | None) -> None:
    """Talks to the first model that the server at `url` lists. Raises Refusal."""
    base = url.rstrip("/").removesuffix("/v1")
    try:
        with urlopen(f"{base}/v1/models", timeout=10) as reply:
            model = json.load(reply)["data"][0]["id"]
    except (URLError, OSError, ValueError, LookupError, TypeError) as error:
        raise Refusal(f"no model to talk to at {url}: {getattr(error, 'reason', error)}") from None

    def answer(messages: Messages) -> str:
        body = {"model": model, "messages": messages, "stream": True}
        headers = {"Content-Type": "application/json"}
        said = ""
        try:
            with urlopen(Request(f"{base}/v1/chat/completions", json.dumps(body).encode(), headers)) as reply:
                for delta in _deltas(reply):
                    _say(delta)
                    said += delta
        except HTTPError as error:
            raise Unanswered(_message(error)) from None
        except (URLError, OSError) as error:
            raise Unanswered(f"{url} is gone: {getattr(error, 'reason', error)}") from None
        return said

    _converse(answer, system)


def _converse(answer: Answer, system: str | None) -> None:
    start: Messages = [{"role": "system", "content": system}] if system else []
    messages = list(start)
    prompt = "\n> " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            if prompt:
                print()
            return
        if line == "/new":
            messages = list(start)
            print("a new conversation", file=sys.stderr)
        elif line:
            asked = [*messages, {"role": "user", "content": line}]
            try:
                said = answer(asked)
            except Unanswered as reason:
                print(f"omnic: {reason}", file=sys.stderr)
                continue
            except KeyboardInterrupt:
                print(" (stopped)", file=sys.stderr)
                continue
            print()
            messages = [*asked, {"role": "assistant", "content": said}]


def _say(text: str) -> None:
    print(text, end="", flush=True)


def _deltas(stream: Any) -> Iterator[str]:
    """The text deltas of a stream of server-sent events. Raises Unanswered for an error in it."""
    for raw in stream:
        line = raw.decode().strip()
        if not line.startswith("data:") or (data := line.removeprefix("data:").strip()) == "[DONE]":
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            raise Unanswered(chunk["error"]["message"])
        for choice in chunk["choices"]:
            if text := choice["delta"].get("content"):
                yield text


def _message(error: HTTPError) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return f"HTTP {error.code} {error.reason}"
