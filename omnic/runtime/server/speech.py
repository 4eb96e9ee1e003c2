"""`/v1/audio/speech`: a text read aloud, whole or as it is made."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted
from omnic.runtime.audio import Encoder, encode
from omnic.runtime.flow import Finished, Piece, join
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import Problem
from omnic.runtime.server.service import Service
from omnic.runtime.server.sse import event


class Speech:
    """One accepted request."""

    def __init__(self, service: Service, endpoint: Endpoint, accepted: Accepted, measure: Measure) -> None:
        self._service, self._endpoint, self._accepted, self._measure = service, endpoint, accepted, measure
        self._output = dict(endpoint.outputs)["audio"]
        self._rate = int(service.content.outputs[self._output].rate_hz or 0)
        self.format: str = accepted.options["response_format"]

    async def events(self, seed: int | None) -> AsyncGenerator[Piece | Finished, None]:
        """Sound as it is made, in pieces that are not empty. Raises Problem if there is none."""
        arguments = self._accepted.arguments | ({} if seed is None else {"seed": seed})
        run = self._service.events(self._endpoint.name, self._accepted.slice.method, arguments, self._measure)
        silent = True
        async with aclosing(run) as events:
            async for each in events:
                if isinstance(each, Piece):
                    if not len(each.value):
                        continue
                    silent = False
                    self._measure.piece("audio", len(each.value) / self._rate)
                elif silent:
                    field = next(f.name for f in self._endpoint.fields if f.required)
                    why = each.notes.get(self._output, "nothing in it can be spoken")
                    raise Problem(400, f"`{field}`: {why}", "nothing_to_speak", field)
                yield each

    async def whole(self, seed: int | None) -> bytes:
        """The sound as one file, its sizes exact."""
        parts: list[Any] = []
        async with aclosing(self.events(seed)) as events:
            async for each in events:
                if isinstance(each, Piece):
                    parts.append(each.value)
        return await asyncio.to_thread(encode, join(parts), self._rate, self.format)

    async def stream(
        self, events: AsyncGenerator[Piece | Finished, None], first: Piece | Finished
    ) -> AsyncGenerator[bytes, None]:
        """The same as one file that begins before its end is known."""
        encoder = Encoder(self.format, self._rate)
        each: Piece | Finished | None = first
        while isinstance(each, Piece):
            if data := await asyncio.to_thread(encoder.push, each.value):
                yield data
            each = await anext(events, None)
        if data := await asyncio.to_thread(encoder.finish):
            yield data

    async def deltas(
        self, events: AsyncGenerator[Piece | Finished, None], first: Piece | Finished
    ) -> AsyncGenerator[bytes, None]:
        """The same as server-sent events."""
        async with aclosing(self.stream(events, first)) as parts:
            async for data in parts:
                yield event({"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()})
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        yield event({"type": "speech.audio.done", "usage": usage})
