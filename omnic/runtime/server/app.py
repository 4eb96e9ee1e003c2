"""The ASGI app of a build: its routes and its life."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from omnic import manifest
from omnic.contract.domains import Choices
from omnic.contract.endpoints import ENDPOINTS, Endpoint
from omnic.contract.openai import DEFAULT_VOICE
from omnic.contract.schema import openapi
from omnic.contract.validate import Accepted, validate
from omnic.runtime.audio import known
from omnic.runtime.server.body import held
from omnic.runtime.server.chat import Chat
from omnic.runtime.server.envelope import Envelope
from omnic.runtime.server.metrics import CONTENT_TYPE, Measure
from omnic.runtime.server.page import HEADERS, page
from omnic.runtime.server.problems import Problem, problem_of
from omnic.runtime.server.service import Service
from omnic.runtime.server.settings import Settings
from omnic.runtime.server.speech import Speech
from omnic.runtime.server.sse import ClientGone, Cut, Streamed, attended, event
from omnic.runtime.workers import Patience, Supervisor, WorkerFailed

log = logging.getLogger("omnic.server")
SEED_HEADER = "x-omnic-seed"
STREAMING_CLIENT = ("x-stainless-raw-response", "stream")  # sent by OpenAI's client for `with_streaming_response`
Answer = Callable[[Request, Accepted, Measure], Awaitable[Response]]


def application(
    build: Path,
    settings: Settings | None = None,
    *,
    patience: Patience | None = None,
    on_failure: Callable[[WorkerFailed], None] | None = None,
) -> FastAPI:
    """The app that serves a build. Its worker starts and ends with the app's lifespan.

    `on_failure` is called when the worker cannot be brought up (again); the process exits with 1 if it is left out.
    Raises manifest.ManifestError.
    """
    content = manifest.read(build)
    supervisor = Supervisor(build, patience=patience, on_failure=on_failure or _exit)
    service = Service(build, content, settings or Settings(), supervisor)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        supervisor.start()
        try:
            yield
        finally:
            await supervisor.stop()

    app = FastAPI(title=content.pipeline, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.openapi = lambda: openapi(content)  # type: ignore[method-assign]  # the way FastAPI documents
    app.add_middleware(Envelope)
    app.add_exception_handler(HTTPException, _http_exception)
    for endpoint in content.endpoints:
        answer = {"chat.completions": _chat, "audio.speech": _speech}[endpoint.name](service, endpoint)
        app.add_route(ENDPOINTS[endpoint.name].path, _handler(service, endpoint, answer), ["POST"])
    _add_facts(app, service)
    return app


def _exit(failure: WorkerFailed) -> None:
    for line in (*failure.output, f"omnic: {failure}"):
        log.error(line)
    os._exit(1)


# --- requests ---------------------------------------------------------------------------------------------------------


def _handler(service: Service, endpoint: Endpoint, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    """From a request to its answer: the contract first, then whether it can be served now, then the work."""

    def hold(body: Any) -> Accepted:
        return validate(endpoint, body, service.content.requires)

    async def handle(request: Request) -> Response:
        measure = Measure(service.metrics, endpoint.name)
        try:
            settings = service.settings
            accepted = await held(request, settings.body_bytes, settings.body_seconds, hold)
            if accepted.options["model"] not in (None, service.model):
                raise _no_model(accepted.options["model"], service.model)
            service.require_ready()
            service.doors[endpoint.name].require(accepted.options.get("n", 1))
            return await answer(request, accepted, measure)
        except (ClientGone, ClientDisconnect):
            measure.end("cancelled")
            return Response(status_code=499)
        except asyncio.CancelledError:
            measure.end("cancelled")
            raise
        except Exception as error:
            problem = _problem(request, error)
            measure.end(problem.outcome)
            return problem.response()

    return handle


def _chat(service: Service, endpoint: Endpoint) -> Answer:
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
        return Streamed(body, "text/event-stream", headers, service.settings.stall_seconds)

    return answer


def _speech(service: Service, endpoint: Endpoint) -> Answer:
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
        return Streamed(body, "text/event-stream" if sse else media_type, headers, service.settings.stall_seconds)

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
        problem = _problem(request, error)
        measure.end(problem.outcome)
        if not sse:
            raise Cut from error
        yield event(problem.body, "error")
    finally:
        measure.end("cancelled")


def _problem(request: Request, error: Exception) -> Problem:
    """What to tell the client; what it is not told goes to the log."""
    problem = problem_of(error)
    if problem.code == "internal_error":
        log.error("%s: a fault of the server", request.scope["request_id"], exc_info=error)
        problem.message += f"; its log has more under {request.scope['request_id']}"
    return problem


def _no_model(asked: str, served: str) -> Problem:
    return Problem(404, f"there is no model `{asked}`; this server has `{served}`", "model_not_found", "model")


# --- facts ------------------------------------------------------------------------------------------------------------


def _add_facts(app: FastAPI, service: Service) -> None:
    model = {"id": service.model, "object": "model", "created": service.created, "owned_by": "omnic"}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        asked = request.path_params["model"]
        return JSONResponse(model) if asked == service.model else _no_model(asked, service.model).response()

    async def health(request: Request) -> Response:
        return JSONResponse({"status": "alive"})

    async def ready(request: Request) -> Response:
        state = "stopping" if service.draining else str(service.supervisor.state)
        stages = {n: {"bytes": d, "of": of} for n, (d, of) in service.supervisor.loading.items()}
        body = {"status": state} | ({} if service.ready else {"loaded": stages})
        return JSONResponse(body, 200 if service.ready else 503, {} if service.ready else {"retry-after": "1"})

    async def metrics(request: Request) -> Response:
        return Response(await service.scrape(), headers={"content-type": CONTENT_TYPE})

    async def voices(request: Request) -> Response:
        return JSONResponse({"voices": _voices(service)})

    async def docs(request: Request) -> Response:
        return HTMLResponse(page(service.content), headers=HEADERS)

    async def front(request: Request) -> Response:
        return RedirectResponse("docs")

    app.add_route("/", front)
    app.add_route("/docs", docs)
    app.add_route("/v1/models", models)
    app.add_route("/v1/models/{model:path}", one_model)
    app.add_route("/health", health)
    app.add_route("/ready", ready)
    app.add_route("/metrics", metrics)
    if service.content.endpoint("audio.speech"):
        app.add_route("/v1/audio/voices", voices)


def _voices(service: Service) -> list[str]:
    endpoint = service.content.endpoint("audio.speech")
    field = endpoint.field("voice") if endpoint else None
    if field is None:
        return [DEFAULT_VOICE]
    if isinstance(field.domain, Choices):
        return [str(v) for v in field.domain.values]
    return [str(v) for v in field.type.args] if field.type.kind == "enum" else [DEFAULT_VOICE]


async def _http_exception(request: Request, error: Exception) -> Response:
    """404 and 405 of the router, in the API's form."""
    assert isinstance(error, HTTPException)
    path, headers = request.url.path, dict(error.headers or {})
    known = next((api.name for api in ENDPOINTS.values() if api.path == path), None)
    if error.status_code == 404:
        why = f"this build does not serve `{known}`" if known else f"there is no {path}"
        return Problem(404, why, "not_found", headers=headers).response()
    if error.status_code == 405:
        return Problem(405, f"{path} does not take {request.method}", "method_not_allowed", headers=headers).response()
    return Problem(error.status_code, str(error.detail), "invalid_request", headers=headers).response()
