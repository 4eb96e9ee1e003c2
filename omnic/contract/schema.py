"""OpenAPI of a build: the request schema that its pipeline implies."""

from __future__ import annotations

import json
from typing import Any, Protocol

from omnic.contract.domains import Choices, Domain, Range
from omnic.contract.endpoints import Endpoint, Field
from omnic.contract.openai import DEFAULT_VOICE, ENDPOINTS, VOICE_FIELDS, Unused
from omnic.contract.types import Type
from omnic.contract.values import MAX_SEED
from omnic.expr import Expr, Quantity, Size

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
    paths = {ENDPOINTS[e.name].path: {"post": _operation(e, manifest.requires)} for e in manifest.endpoints}
    if any(e.name == "audio.speech" for e in manifest.endpoints):
        paths["/v1/audio/voices"] = _get("The voices that can speak", "application/json")
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


def request_schema(endpoint: Endpoint, rules: tuple[Expr, ...] = ()) -> Json:
    """JSON Schema of the request bodies of an endpoint."""
    body: Json = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    for field in endpoint.fields:
        _place(body, field.name, _field(field))
        if field.required and "." not in field.name:
            body["required"].append(field.name)
    present = {f.name for f in endpoint.fields} | {f.name.split(".", 1)[0] for f in endpoint.fields}
    for unused in ENDPOINTS[endpoint.name].unused:
        if unused.name not in present and unused.neutral != ():
            _place(body, unused.name, _unused(unused))
    if rules:
        body["description"] = "Rules: " + "; ".join(map(str, rules))
    return body


def _place(body: Json, name: str, schema: Json) -> None:
    outer, _, inner = name.partition(".")
    if not inner:
        body["properties"][name] = schema
        return
    nest = body["properties"].setdefault(outer, {"type": "object", "properties": {}, "additionalProperties": False})
    nest["properties"][inner] = schema


def _field(field: Field) -> Json:
    schema = _type(field.type) | _domain(field.domain)
    if field.name in VOICE_FIELDS and DEFAULT_VOICE not in schema.get("enum", [DEFAULT_VOICE]):
        schema["enum"] = [*schema["enum"], DEFAULT_VOICE]
    if field.many:
        schema = {"type": "array", "items": schema, "maxItems": field.many}
        if field.type.kind == "text" and field.domain is None:
            schema = {"anyOf": [_type(field.type), schema]}
    if field.default is not None:
        schema["default"] = _plain(field.default)
    if described := "; ".join(filter(None, (field.doc, schema.get("description")))):
        schema["description"] = described
    return schema


def _type(type_: Type) -> Json:
    match type_.kind:
        case "text":
            limit = type_.bound("max_chars")
            return {"type": "string"} if limit is None else {"type": "string", "maxLength": int(limit)}
        case "enum":
            return {"type": "string", "enum": [str(a) for a in type_.args]}
        case "bool":
            return {"type": "boolean"}
        case "int":
            return {"type": "integer"}
        case "seed":
            return {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
        case "float":
            return {"type": "number"}
        case "size":
            return {"type": "string", "pattern": r"^[1-9]\d*x[1-9]\d*$"}
        case "chat":
            return _MESSAGES
    return {}


def _domain(domain: Domain | None) -> Json:
    if isinstance(domain, Choices):
        return {"enum": [_plain(v) for v in domain.values]}
    if isinstance(domain, Range) and isinstance(domain.low, Size):
        return {"description": f"in {domain}"}
    if isinstance(domain, Range):
        schema: Json = {"minimum": _plain(domain.low), "maximum": _plain(domain.high)}
        if domain.step and _plain(domain.low) % domain.step == 0:
            schema["multipleOf"] = domain.step
        return schema
    return {}


def _plain(value: Any) -> Any:
    if isinstance(value, Quantity):
        return value.base
    if isinstance(value, Size):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _unused(unused: Unused) -> Json:
    types = list(unused.json)
    schema: Json = {"type": types[0] if len(types) == 1 else types, "description": unused.doc}
    return schema if unused.neutral is None else schema | {"enum": list(unused.neutral)}


def _operation(endpoint: Endpoint, rules: tuple[Expr, ...]) -> Json:
    api = ENDPOINTS[endpoint.name]
    params = {f.target.removeprefix("param ") for f in endpoint.fields if f.target.startswith("param ")}
    concerned = tuple(r for r in rules if _names(r) <= params)
    return {
        "summary": api.summary,
        "operationId": endpoint.name,
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": request_schema(endpoint, concerned)}},
        },
        "responses": {"200": {"description": "The answer", "content": _CONTENT[endpoint.name]}}
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
    415: "The body is not JSON",
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
_PART: Json = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
}
_MESSAGES: Json = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "developer", "user", "assistant"]},
            "content": {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": _PART}]},
        },
    },
}
_CONTENT: dict[str, Json] = {
    "chat.completions": {"application/json": {}, "text/event-stream": {}},
    "audio.speech": {
        media: {}
        for media in (
            "audio/mpeg",
            "audio/ogg",
            "audio/aac",
            "audio/flac",
            "audio/wav",
            "audio/pcm",
            "text/event-stream",
        )
    },
}
