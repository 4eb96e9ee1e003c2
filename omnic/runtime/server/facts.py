"""What a server tells of itself: its model, its voices, whether it lives and is ready, what it has counted."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from omnic.contract.domains import Choices
from omnic.contract.openai import DEFAULT_VOICE
from omnic.runtime.server.metrics import CONTENT_TYPE
from omnic.runtime.server.page import HEADERS, page
from omnic.runtime.server.problems import no_model
from omnic.runtime.server.service import Service


def add_facts(app: FastAPI, service: Service) -> None:
    model = {"id": service.model, "object": "model", "created": service.created, "owned_by": "omnic"}

    async def models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [model]})

    async def one_model(request: Request) -> Response:
        asked = request.path_params["model"]
        return JSONResponse(model) if asked == service.model else no_model(asked, service.model).response()

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
