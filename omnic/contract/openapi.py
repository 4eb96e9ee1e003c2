"""OpenAPI of a build: the requests that its pipeline implies."""

from __future__ import annotations

import json
from typing import Any, Protocol

from omnic.contract.fields import Endpoint
from omnic.contract.openai import ENDPOINTS
from omnic.contract.schema import request_schema
from omnic.contract.visual import PICTURES_PATH
from omnic.expr import Expr

Json = dict[str, Any]


class Served(Protocol):
    """What is read of a manifest."""

    @property
    def pipeline(self) -> str: ...
    @property
    def omnic(self) -> str: ...
    @property
    def requires(self) -> tuple[Expr, ...]: ...
    @property
    def endpoints(self) -> tuple[Endpoint, ...]: ...


def openapi_json(manifest: Served) -> bytes:
    """`openapi` as indented JSON."""
    return (json.dumps(openapi(manifest), indent=2, ensure_ascii=False) + "\n").encode()


def openapi(manifest: Served) -> Json:
    """The OpenAPI 3.1 description of everything the server of a build answers."""
    paths: Json = {ENDPOINTS[e.name].path: {"post": _operation(e, manifest.requires)} for e in manifest.endpoints}
    served = {e.name for e in manifest.endpoints}
    if "audio.speech" in served:
        paths["/v1/audio/voices"] = _get("The voices that can speak", "application/json")
    if served & {"images.generations", "images.edits"}:
        paths[f"{PICTURES_PATH}/{{name}}"] = _get("A picture made a while ago", "image/png", path="name")
    if "videos" in served:
        _add_videos(paths)
    paths |= {
        "/v1/models": _get("The served model", "application/json"),
        "/v1/models/{model}": _get("One served model", "application/json", path="model"),
        "/health": _get("Whether the server is alive", "application/json"),
        "/ready": _get("Whether it can take requests: every stage loaded, its worker alive", "application/json", 503),
        "/metrics": _get("Prometheus metrics", "text/plain"),
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": manifest.pipeline, "version": manifest.omnic},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR}},
    }


def _add_videos(paths: Json) -> None:
    """What there is beside the POST that begins a job."""
    path = ENDPOINTS["videos"].path
    begin = paths[path]["post"]
    query = [("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}), ("after", {"type": "string"}),
             ("order", {"enum": ["asc", "desc"], "default": "desc"})]  # fmt: skip
    listed = _get("Jobs, the newest first", "application/json")["get"]
    listed["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in query]
    paths[path]["get"] = listed
    paths[f"{path}/{{id}}"] = _get("How far a job is", "application/json", path="id")
    paths[f"{path}/{{id}}"]["delete"] = _get("Cancel a job and forget what it made", "application/json", path="id")[
        "get"
    ]
    paths[f"{path}/{{id}}/content"] = _get("The video, once it is made", "video/mp4", path="id")
    paths[f"{path}/sync"] = {"post": begin | {
        "summary": "Make a video; the answer is the video",
        "operationId": "videos.sync",
        "responses": begin["responses"] | {"200": {"description": "The video", "content": {"video/mp4": {}}}},
    }}  # fmt: skip


def _operation(endpoint: Endpoint, rules: tuple[Expr, ...]) -> Json:
    api = ENDPOINTS[endpoint.name]
    params = {f.target.removeprefix("param ") for f in endpoint.fields if f.target.startswith("param ")}
    concerned = tuple(r for r in rules if _names(r) <= params)
    return {
        "summary": api.summary,
        "operationId": endpoint.name,
        "requestBody": {
            "required": True,
            "content": {form: {"schema": request_schema(endpoint, concerned, form)} for form in api.forms},
        },
        "responses": {"200": {"description": "The answer", "content": {media: {} for media in api.gives}}}
        | {str(status): _failure(text) for status, text in _FAILURES.items()},
    }


def _names(rule: Expr) -> set[str]:
    from omnic.expr import names

    return {name.path[0] for name in names(rule)}


def _get(summary: str, content: str, *others: int, path: str | None = None) -> Json:
    operation: Json = {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": {content: {}}}}
        | {str(status): {"description": "Not now", "content": {content: {}}} for status in others},
    }
    if path:
        operation["parameters"] = [{"name": path, "in": "path", "required": True, "schema": {"type": "string"}}]
        operation["responses"]["404"] = _failure(_FAILURES[404])
    return {"get": operation}


def _failure(text: str) -> Json:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }


_FAILURES = {
    400: "Outside the contract: `param` names the field",
    404: "No such model",
    413: "The body is too large",
    415: "The body is of another media type",
    429: "The queue is full: try again after `Retry-After` seconds",
    500: "A fault of the server",
    503: "Not now (loading, restarting or shutting down): try again after `Retry-After` seconds",
}
_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
