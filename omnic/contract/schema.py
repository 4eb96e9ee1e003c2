"""JSON Schema of the requests of an endpoint: `request_schema`."""

from __future__ import annotations

from typing import Any

from omnic.contract.api import Unused
from omnic.contract.domains import Choices, Domain, Range
from omnic.contract.fields import Endpoint, Field
from omnic.contract.openai import DEFAULT_VOICE, ENDPOINTS, VOICE_FIELDS
from omnic.contract.types import Type
from omnic.contract.values import AUTO, MAX_SEED
from omnic.expr import Expr, Quantity, Size

Json = dict[str, Any]


def request_schema(endpoint: Endpoint, rules: tuple[Expr, ...] = (), form: str = "application/json") -> Json:
    """JSON Schema of the request bodies of an endpoint, of media type `form`."""
    body: Json = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    for field in endpoint.fields:
        if field.name.endswith("]"):  # what a list carries beside its first value
            _lengthen(body["properties"][field.name.partition("[")[0]])
            continue
        _place(body, field.name, _picture(field, form) if field.type.kind == "image" else _field(field))
        if field.required and "." not in field.name:
            body["required"].append(field.name)
    present = {f.name for f in endpoint.fields} | {f.name.split(".", 1)[0] for f in endpoint.fields}
    for unused in ENDPOINTS[endpoint.name].unused:
        if unused.name not in present and unused.neutral != ():
            _place(body, unused.name, _unused(unused))
    if rules:
        body["description"] = "Rules: " + "; ".join(map(str, rules))
    return body


def _picture(field: Field, form: str) -> Json:
    if form == "application/json":
        return {"type": "string", "pattern": "^data:image/", "description": field.doc or "a picture, as a data URL"}
    schema = {"type": "string", "contentMediaType": "application/octet-stream"}
    return schema | ({"description": field.doc} if field.doc else {})


def _lengthen(schema: Json) -> None:
    """A field that takes one value, or a list, takes one more in its list."""
    if "anyOf" not in schema:
        one = dict(schema)
        schema.clear()
        schema["anyOf"] = [one, {"type": "array", "items": one, "minItems": 1, "maxItems": 1}]
    schema["anyOf"][1]["maxItems"] += 1


def _place(body: Json, name: str, schema: Json) -> None:
    outer, _, inner = name.partition(".")
    if not inner:
        body["properties"][name] = schema
        return
    nest = body["properties"].setdefault(outer, {"type": "object", "properties": {}, "additionalProperties": False})
    nest["properties"][inner] = schema


def _field(field: Field) -> Json:
    if field.rate:
        return {"type": ["number", "string"], "description": field.doc}
    schema = _type(field.type) | _domain(field.domain)
    if field.type.kind == "size" and "enum" in schema:
        schema["enum"] = [*schema["enum"], AUTO]
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
            return {"type": "string", "pattern": rf"^([1-9]\d*x[1-9]\d*|{AUTO})$"}
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
