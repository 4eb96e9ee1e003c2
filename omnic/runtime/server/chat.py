"""`/v1/chat/completions`: an answer as text, with speech and pictures if asked for, whole or as it is made."""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted
from omnic.runtime import picture_files
from omnic.runtime.audio import Encoder, encode
from omnic.runtime.flow import Finished, Piece, join
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.service import Service
from omnic.runtime.server.several import several
from omnic.runtime.server.sse import DONE, event

Event = tuple[int, Piece | Finished]
"""Which of the `n` answers, and what of it."""


class Chat:
    """One accepted request: `n` answers to it. Where a method takes a seed, answer i runs with seed + i; None where
    the pipeline pins its own."""

    def __init__(self, service: Service, endpoint: Endpoint, accepted: Accepted, measure: Measure) -> None:
        self._service, self._endpoint, self._accepted, self._measure = service, endpoint, accepted, measure
        self._roles = {output: role for role, output in endpoint.outputs}
        self._rate = next(
            (int(service.content.outputs[o].rate_hz or 0) for o, r in self._roles.items() if r == "audio"), 0
        )
        self._created = int(time.time())
        self._id = f"chatcmpl-{secrets.token_hex(12)}"
        self.n: int = accepted.options["n"]

    @property
    def format(self) -> str | None:
        """How speech is to be encoded; None if the answer has none."""
        spoken = any(self._roles[output] == "audio" for output in self._accepted.slice.outputs)
        return self._accepted.options["audio.format"] if spoken else None

    # --- running ---------------------------------------------------------------------------------------------------

    async def events(self, seed: int | None) -> AsyncGenerator[Event, None]:
        """What comes of all answers, as it comes. Leaving early cancels them."""
        async with aclosing(several([self._one(i, seed) for i in range(self.n)])) as events:
            async for each in events:
                yield each

    async def _one(self, index: int, seed: int | None) -> AsyncGenerator[Piece | Finished, None]:
        arguments = self._accepted.arguments | ({} if seed is None else {"seed": (seed + index) % (1 << 63)})
        run = self._service.events(self._endpoint.name, self._accepted.slice.method, arguments, self._measure)
        async with aclosing(run) as events:
            async for each in events:
                if isinstance(each, Piece):
                    role = self._roles[each.output]
                    self._measure.piece(role, len(each.value) / self._rate if role == "audio" else 0.0)
                else:
                    self._measure.finished(each)
                yield each

    # --- whole -----------------------------------------------------------------------------------------------------

    async def whole(self, seed: int | None) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        pieces: list[dict[str, list[Any]]] = [{o: [] for o in self._accepted.slice.outputs} for _ in range(self.n)]
        ends: list[Finished | None] = [None] * self.n
        async with aclosing(self.events(seed)) as events:
            async for index, each in events:
                if isinstance(each, Piece):
                    pieces[index][each.output].append(each.value)
                else:
                    ends[index] = each
        finished = [end for end in ends if end is not None]
        choices = [await self._choice(i, pieces[i], end) for i, end in enumerate(finished)]
        return self._frame("chat.completion", choices) | {"usage": _usage(finished)}

    async def _choice(self, index: int, pieces: dict[str, list[Any]], end: Finished) -> dict[str, Any]:
        by_role = {self._roles[output]: parts for output, parts in pieces.items()}
        pictures = by_role.pop("image", None)
        answer = {role: join(parts) for role, parts in by_role.items()}
        text = answer.get("text") or ""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if self.format:
            message["audio"] = None
            if answer["audio"] is not None:
                data = await asyncio.to_thread(encode, answer["audio"], self._rate, self.format)
                message["audio"] = self._audio(index) | {"data": _base64(data), "transcript": text} | self._expires()
        if pictures is not None:
            message["images"] = [await self._picture(pixels) for pixels in pictures]
        return _choice(index, end.finish_reason or "stop", message=message) | self._notes(end)

    # --- streamed --------------------------------------------------------------------------------------------------

    async def chunks(self, events: AsyncGenerator[Event, None], first: Event) -> AsyncGenerator[bytes, None]:
        """Server-sent events: a role chunk an answer, deltas, how each ended, usage if asked for, `[DONE]`."""
        encoders: dict[int, Encoder] = {}
        finished: list[Finished] = []
        for index in range(self.n):
            yield self._chunk(index, {"role": "assistant", "content": ""})
        item: Event | None = first
        while item is not None:
            index, each = item
            if isinstance(each, Finished):
                finished.append(each)
                for delta in await self._last(index, encoders):
                    yield self._chunk(index, delta)
                yield self._chunk(index, {}, each.finish_reason or "stop", self._notes(each))
            else:
                delta = await self._delta(index, each, encoders)
                if delta:
                    yield self._chunk(index, delta)
            item = await anext(events, None)
        if self._accepted.options["stream_options.include_usage"]:
            yield event(self._frame("chat.completion.chunk", []) | {"usage": _usage(finished)})
        yield DONE

    async def _delta(self, index: int, piece: Piece, encoders: dict[int, Encoder]) -> dict[str, Any]:
        if self._roles[piece.output] == "text":
            spoken = {"audio": self._audio(index) | {"transcript": piece.value}} if self.format else {}
            return {"content": piece.value} | spoken
        if self._roles[piece.output] == "image":
            return {"images": [{"index": piece.index} | await self._picture(piece.value)]}
        assert self.format
        if index not in encoders:
            encoders[index] = Encoder(self.format, self._rate)
        data = await asyncio.to_thread(encoders[index].push, piece.value)
        return {"audio": self._audio(index) | {"data": _base64(data)}} if data else {}

    async def _last(self, index: int, encoders: dict[int, Encoder]) -> list[dict[str, Any]]:
        if index not in encoders:
            return []
        data = await asyncio.to_thread(encoders[index].finish)
        rest = [{"audio": self._audio(index) | {"data": _base64(data)}}] if data else []
        return [*rest, {"audio": self._expires()}]

    def _chunk(
        self, index: int, delta: dict[str, Any], finish_reason: str | None = None, more: dict[str, Any] | None = None
    ) -> bytes:
        choice = _choice(index, finish_reason, delta=delta) | (more or {})
        usage = {"usage": None} if self._accepted.options["stream_options.include_usage"] else {}
        return event(self._frame("chat.completion.chunk", [choice]) | usage)

    # --- shapes ----------------------------------------------------------------------------------------------------

    def _frame(self, object_: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": object_,
            "created": self._created,
            "model": self._service.model,
            "system_fingerprint": f"omnic-{self._service.content.source_sha256[:12]}",
            "choices": choices,
        }

    async def _picture(self, pixels: Any) -> dict[str, Any]:
        """A picture as other servers put it in an answer: the part of a message that would carry it in a request."""
        data = await asyncio.to_thread(picture_files.encode, pixels, "png")
        self._measure.pictures(1)
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{_base64(data)}"}}

    def _audio(self, index: int) -> dict[str, Any]:
        return {"id": f"audio-{self._id.removeprefix('chatcmpl-')}-{index}"}

    def _expires(self) -> dict[str, Any]:
        """No sound is kept, so it can be named in a later request for no time at all."""
        return {"expires_at": self._created}

    def _notes(self, end: Finished) -> dict[str, Any]:
        """Why a part of the answer is empty or cut, by role."""
        notes = {self._roles[output]: note for output, note in end.notes.items() if output in self._roles}
        return {"notes": notes} if notes else {}


def _choice(index: int, finish_reason: str | None, **content: Any) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}


def _usage(finished: list[Finished]) -> dict[str, int]:
    """The prompt is counted once, however many answers it has."""
    prompt = finished[0].prompt_tokens if finished else 0
    completion = sum(end.completion_tokens for end in finished)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
