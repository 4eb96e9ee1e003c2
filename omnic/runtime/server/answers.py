"""How an accepted request of each endpoint is answered: whole, streamed, or as events."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted
from omnic.runtime import video_files
from omnic.runtime.audio import known
from omnic.runtime.server.chat import Chat
from omnic.runtime.server.images import Images
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import reported
from omnic.runtime.server.service import Service
from omnic.runtime.server.speech import Speech
from omnic.runtime.server.sse import Cut, Streamed, attended, event
from omnic.runtime.server.videos import Sync, Videos

SEED_HEADER = "x-omnic-seed"
STREAMING_CLIENT = ("x-stainless-raw-response", "stream")  # sent by OpenAI's client for `with_streaming_response`
_SSE = "text/event-stream"
Answer: TypeAlias = Callable[[Request, Accepted, Measure], Awaitable[Response]]


def chat(service: Service, endpoint: Endpoint) -> Answer:
    async def answer(request: Request, accepted: Accepted, measure: Measure) -> Response:
        chat = Chat(service, endpoint, accepted, measure)
        if chat.format:
            known(chat.format, "audio.format")
        seed, headers = _seed(accepted)
        if not accepted.options["stream"]:
            whole = await attended(request, chat.whole(seed))
            measure.end("completed")
            return JSONResponse(whole, headers=headers)
        events = chat.events(seed)
        first = await attended(request, anext(events))
        chunks = chat.chunks(events, first)
        body = _measured(request, chunks, events, measure, sse=True)
        return Streamed(body, _SSE, headers, service.settings.stall_seconds)

    return answer


def speech(service: Service, endpoint: Endpoint) -> Answer:
    async def answer(request: Request, accepted: Accepted, measure: Measure) -> Response:
        speech = Speech(service, endpoint, accepted, measure)
        media_type = known(speech.format, "response_format").content_type
        seed, headers = _seed(accepted)
        form = accepted.options["stream_format"]
        if form is None and request.headers.get(STREAMING_CLIENT[0]) == STREAMING_CLIENT[1]:
            form = "audio"
        if form is None:
            data = await attended(request, speech.whole(seed))
            measure.end("completed")
            return Response(data, media_type=media_type, headers=headers)
        events = speech.events(seed)
        first = await attended(request, anext(events))
        sse = form == "sse"
        parts = speech.deltas(events, first) if sse else speech.stream(events, first)
        body = _measured(request, parts, events, measure, sse=sse)
        return Streamed(body, _SSE if sse else media_type, headers, service.settings.stall_seconds)

    return answer


def images(service: Service, endpoint: Endpoint) -> Answer:
    async def answer(request: Request, accepted: Accepted, measure: Measure) -> Response:
        images = Images(service, endpoint, accepted, measure)
        seed, headers = _seed(accepted)
        if not accepted.options["stream"]:
            whole = await attended(request, images.whole(seed, str(request.base_url)))
            measure.end("completed")
            return Response(msgspec.json.encode(whole), media_type="application/json", headers=headers)  # megabytes
        events = images.events(seed)
        first = await attended(request, anext(events))
        body = _measured(request, images.frames(events, first), events, measure, sse=True)
        return Streamed(body, _SSE, headers, service.settings.stall_seconds)

    return answer


def jobs(videos: Videos) -> Answer:
    """Of a request that begins a job. How the job ends is counted, not how the request does."""

    async def answer(request: Request, accepted: Accepted, measure: Measure) -> Response:
        seed, headers = _seed(accepted)
        job = await videos.begin(accepted, seed)
        measure.leave()
        return JSONResponse(job, headers=headers)

    return answer


def video(service: Service) -> Answer:
    async def answer(request: Request, accepted: Accepted, measure: Measure) -> Response:
        sync = Sync(service, accepted, measure)
        seed, headers = _seed(accepted)
        if not accepted.options["stream"]:
            data = await attended(request, sync.whole(seed))
            measure.end("completed")
            return Response(data, media_type=video_files.CONTENT_TYPE, headers=headers)
        events = sync.events(seed)
        first = await attended(request, anext(events))
        body = _measured(request, sync.stream(events, first), events, measure, sse=False)
        return Streamed(body, video_files.CONTENT_TYPE, headers, service.settings.stall_seconds)

    return answer


def _seed(accepted: Accepted) -> tuple[int | None, dict[str, str]]:
    """The seed to run with and the header that reports it; nothing of either where the pipeline pins its own."""
    if "seed" not in accepted.options:
        return None, {}
    given = accepted.options["seed"]
    seed = secrets.randbelow(1 << 31) if given is None else int(given)
    return seed, {SEED_HEADER: str(seed)}


async def _measured(
    request: Request,
    body: AsyncGenerator[bytes, None],
    events: AsyncGenerator[Any, None],
    measure: Measure,
    *,
    sse: bool,
) -> AsyncGenerator[bytes, None]:
    """`body` with its end counted. What goes wrong once it has begun is said in an event, or by breaking off."""
    try:
        async with aclosing(events), aclosing(body):
            async for part in body:
                yield part
        measure.end("completed")
    except Exception as error:
        problem = reported(request, error)
        measure.end(problem.outcome)
        if not sse:
            raise Cut from error
        yield event(problem.body, "error")
    finally:
        measure.end("cancelled")
