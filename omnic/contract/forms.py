"""A form (multipart/form-data) as the JSON body that says the same: `body_of`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from omnic.contract.fields import Endpoint
from omnic.contract.openai import ENDPOINTS
from omnic.contract.values import Upload, Violation

_NAME = re.compile(r"([^\[\]]+)(?:\[([^\[\]]*)\])?")
_JSON_KINDS = {"int": ("integer",), "seed": ("integer",), "float": ("number",), "bool": ("boolean",),
               "json": ("object", "array")}  # fmt: skip
_WORDS = {"true": True, "false": False}


def body_of(endpoint: Endpoint, parts: Iterable[tuple[str, str | Upload]]) -> dict[str, Any]:
    """The body that the parts of a form stand for: numbers and words read as the fields want them, `name[]` and a
    picture that comes several times as a list, `name[key]` as an object. What cannot be read so stays a text, which
    the contract refuses. Raises Violation for a field that is given twice.
    """
    kinds = {u.name: u.json for u in ENDPOINTS[endpoint.name].unused}
    kinds |= {f.name: _JSON_KINDS.get(f.type.kind, ("string",)) for f in endpoint.fields}
    pictures = {f.name for f in endpoint.fields if f.type.kind == "image"}
    body: dict[str, Any] = {}
    for part, raw in parts:
        match = _NAME.fullmatch(part)
        name, key = match.groups() if match else (part, None)
        value = _read(raw, kinds.get(name if not key else f"{name}.{key}", ())) if isinstance(raw, str) else raw
        if key and not key.isdigit():
            inner = body.setdefault(name, {})
            if not isinstance(inner, dict) or key in inner:
                raise Violation(f"`{part}` is given twice", name)
            inner[key] = value
        elif key is not None or (name in body and name in pictures):
            held = body.setdefault(name, [])
            body[name] = [*(held if isinstance(held, list) else [held]), value]
        elif name in body:
            raise Violation(f"`{name}` is given twice", name)
        else:
            body[name] = value
    return body


def _read(text: str, kinds: tuple[str, ...]) -> Any:
    """`text` as the first of `kinds` that it can be, else as it is."""
    if "boolean" in kinds and text in _WORDS:
        return _WORDS[text]
    if {"integer", "number", "object", "array"} & set(kinds) and text[:1] in "0123456789-{[":
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value if not isinstance(value, dict | list) or {"object", "array"} & set(kinds) else text
    return text
