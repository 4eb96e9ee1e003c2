"""The ASGI app of a build: its routes and its life."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from omnic import manifest
from omnic.contract.endpoints import ENDPOINTS, Endpoint
from omnic.contract.openapi import openapi
from omnic.contract.validate import Accepted, validate
from omnic.contract.visual import PICTURES_PATH
from omnic.runtime.server import answers, pictures
from omnic.runtime.server.answers import Answer
from omnic.runtime.server.body import held
from omnic.runtime.server.envelope import Envelope
from omnic.runtime.server.facts import add_facts
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import Problem, no_model, reported
from omnic.runtime.server.runner import Runner
from omnic.runtime.server.service import Service
from omnic.runtime.server.settings import Settings
from omnic.runtime.server.sse import ClientGone, Streamed
from omnic.runtime.server.videos import Videos
from omnic.runtime.workers import Patience, Supervisor, WorkerFailed

log = logging.getLogger("omnic.server")
Handler = Callable[[Request], Awaitable[Response]]
_ANSWERS: dict[str, Callable[[Service, Endpoint], Answer]] = {
    "chat.completions": answers.chat,
    "audio.speech": answers.speech,
    "images.generations": answers.images,
    "images.edits": answers.images,
}


def application(
    build: Path,
    settings: Settings | None = None,
    *,
    patience: Patience | None = None,
    on_failure: Callable[[WorkerFailed], None] | None = None,
) -> FastAPI:
    """The app that serves a build. Its worker starts and ends with the app's lifespan.

    `on_failure` is called when the worker cannot be brought up (again), or jobs cannot be kept; the process exits
    with 1 if it is left out. Raises manifest.ManifestError.
    """
    content = manifest.read(build)
    supervisor = Supervisor(build, patience=patience, on_failure=on_failure or _exit)
    service = Service(build, content, settings or Settings(), supervisor)
    endpoint = content.endpoint("videos")
    runner = Runner(service) if endpoint else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        supervisor.start()
        try:
            if runner:
                try:
                    await runner.start()
                except (OSError, sqlite3.Error) as error:
                    (on_failure or _exit)(
                        WorkerFailed(f"jobs cannot be kept: {error}; name another directory with --jobs")
                    )
            yield
        finally:
            if runner:
                await runner.stop()
            await supervisor.stop()
            service.kept.close()

    app = FastAPI(title=content.pipeline, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.openapi = lambda: openapi(content)  # type: ignore[method-assign]  # the way FastAPI documents
    app.add_middleware(Envelope)
    app.add_exception_handler(HTTPException, _http_exception)
    for served in content.endpoints:
        if served.name in _ANSWERS:
            answer = _ANSWERS[served.name](service, served)
            app.add_route(ENDPOINTS[served.name].path, _handler(service, served, answer), ["POST"])
    if {"images.generations", "images.edits"} & {e.name for e in content.endpoints}:
        app.add_route(f"{PICTURES_PATH}/{{name}}", service.kept.fetch)
    if endpoint and runner:
        _add_videos(app, service, endpoint, runner)
    add_facts(app, service)
    return app


def _add_videos(app: FastAPI, service: Service, endpoint: Endpoint, runner: Runner) -> None:
    path, videos = ENDPOINTS["videos"].path, Videos(service, endpoint, runner)
    app.add_route(path, _handler(service, endpoint, answers.jobs(videos), queued=True), ["POST"])
    app.add_route(path, _told(videos.list), ["GET"])
    app.add_route(f"{path}/sync", _handler(service, endpoint, answers.video(service)), ["POST"])
    app.add_route(f"{path}/{{id}}", _told(videos.one), ["GET"])
    app.add_route(f"{path}/{{id}}", _told(videos.delete), ["DELETE"])
    app.add_route(f"{path}/{{id}}/content", _told(videos.content), ["GET"])


def _exit(failure: WorkerFailed) -> None:
    for line in (*failure.output, f"omnic: {failure}"):
        log.error(line)
    os._exit(1)


def _handler(service: Service, endpoint: Endpoint, answer: Answer, *, queued: bool = False) -> Handler:
    """From a request to its answer: the contract first, then whether it can be served now, then the work.

    One that is `queued` waits in a line of its own.
    """

    def hold(body: Any) -> Accepted:
        return validate(endpoint, body, service.content.requires)

    async def handle(request: Request) -> Response:
        measure = Measure(service.metrics, endpoint.name)
        files = ExitStack()  # of the request
        response: Response | None = None
        try:
            accepted = await held(request, endpoint, service.settings, files, hold)
            if accepted.options["model"] not in (None, service.model):
                raise no_model(accepted.options["model"], service.model)
            await pictures.look(endpoint, accepted, service.reading)
            service.require_ready()
            if not queued:
                service.doors[endpoint.name].require(accepted.options.get("n", 1))
            response = await answer(request, accepted, measure)
        except (ClientGone, ClientDisconnect):
            measure.end("cancelled")
            response = Response(status_code=499)
        except asyncio.CancelledError:
            measure.end("cancelled")
            raise
        except Exception as error:
            problem = reported(request, error)
            measure.end(problem.outcome)
            response = problem.response()
        finally:
            if isinstance(response, Streamed):
                response.over += [files.close, lambda: measure.end("cancelled")]
            else:
                files.close()
        return response

    return handle


def _told(route: Handler) -> Handler:
    """A route whose errors are answers."""

    async def handle(request: Request) -> Response:
        try:
            return await route(request)
        except Exception as error:
            return reported(request, error).response()

    return handle


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
