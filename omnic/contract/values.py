"""One value of a request: is it what its field takes? `Violation` says why not."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from omnic.contract.domains import Choices, OutOfDomain
from omnic.contract.endpoints import Field
from omnic.contract.types import Type
from omnic.expr import Size

MAX_SEED = 2**63 - 1
_SIZE = re.compile(r"([0-9]{1,7})x([0-9]{1,7})(?:x([0-9]{1,7}))?")


class Violation(ValueError):
    """A request outside the contract. `field` is the field at fault, `code` one of OpenAI's words for the fault."""

    def __init__(self, message: str, field: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message, self.field, self.code = message, field, code


def value_of(field: Field, raw: Any) -> Any:
    """`raw`, as JSON gave it, as the value of `field`. Lists come back as tuples. Raises Violation."""
    if not field.many:
        return _within(field, field.name, _typed(field.type, field.name, raw))
    if isinstance(raw, str) and field.type.kind == "text" and not isinstance(field.domain, Choices):
        raw = [raw]
    if not isinstance(raw, list):
        raise mistyped(field.name, "a list", raw)
    if len(raw) > field.many:
        raise Violation(f"`{field.name}` takes at most {field.many} values, not {len(raw)}", field.name)
    items = ((f"{field.name}[{i}]", item) for i, item in enumerate(raw))
    values = tuple(_within(field, name, _typed(field.type, name, item)) for name, item in items)
    if any(v == "" for v in values):
        raise Violation(f"`{field.name}` holds an empty text", field.name)
    return values


def not_blank(name: str, text: str) -> str:
    if not text.strip():
        raise Violation(f"`{name}` is blank", name)
    return text


def mistyped(name: str, wanted: str, raw: Any) -> Violation:
    return Violation(f"`{name}` must be {wanted}, not {show(raw)}", name, "invalid_type")


def show(raw: Any) -> str:
    """A JSON value as text, cut where it is long."""
    text = json.dumps(raw, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "…"


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal. A bool is no number: `false` is not 0."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def _within(field: Field, name: str, value: Any) -> Any:
    if field.domain is not None:
        try:
            field.domain.require(name, value)
        except OutOfDomain as error:
            raise Violation(str(error), name) from None
    return value


def _typed(type_: Type, name: str, raw: Any) -> Any:
    match type_.kind:
        case "text":
            return _text(type_, name, raw)
        case "enum":
            if not isinstance(raw, str):
                raise mistyped(name, "a text", raw)
            if raw not in type_.args:
                raise Violation(f"`{name}` must be one of {', '.join(map(show, type_.args))}, not {show(raw)}", name)
            return raw
        case "bool":
            if not isinstance(raw, bool):
                raise mistyped(name, "true or false", raw)
            return raw
        case "int":
            return _whole(name, raw)
        case "seed":
            seed = _whole(name, raw)
            if not 0 <= seed <= MAX_SEED:
                raise Violation(f"`{name}` must be in 0..{MAX_SEED}, not {seed}", name)
            return seed
        case "float":
            if isinstance(raw, bool) or not isinstance(raw, int | float):
                raise mistyped(name, "a number", raw)
            if not math.isfinite(raw):
                raise Violation(f"`{name}` must be a finite number", name)
            return float(raw)
        case "size":
            if not isinstance(raw, str):
                raise mistyped(name, 'a size such as "1024x1024"', raw)
            match = _SIZE.fullmatch(raw)
            sides = [int(side) for side in match.groups() if side is not None] if match else []
            if not sides or 0 in sides:
                raise Violation(f'`{name}` must be a size such as "1024x1024", not {show(raw)}', name)
            return Size(*sides)
        case "json":
            return raw
    raise Violation(f"`{name}` cannot be given as JSON: it is of type `{type_}`", name, "unsupported_value")


def _whole(name: str, raw: Any) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise mistyped(name, "a whole number", raw)
    return raw


def _text(type_: Type, name: str, raw: Any) -> str:
    if not isinstance(raw, str):
        raise mistyped(name, "a text", raw)
    limit = type_.bound("max_chars")
    if limit is not None and len(raw) > limit:
        raise Violation(
            f"`{name}` may have at most {limit} characters, not {len(raw)}", name, "string_above_max_length"
        )
    return raw
