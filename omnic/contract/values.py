"""One value of a request: is it what its field takes? `Violation` says why not."""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import re
from dataclasses import dataclass
from typing import Any, BinaryIO

from omnic.contract.domains import Choices, OutOfDomain, Range
from omnic.contract.fields import Field
from omnic.contract.types import Type
from omnic.expr import Size

MAX_SEED = 2**63 - 1
MAX_PIXELS = 1 << 24  # of a size whose field has no domain, and of a picture whose type has no bound
AUTO = "auto"  # as a size: the pipeline's own
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}(\.[0-9]{0,9})?")
_SIZE = re.compile(r"([0-9]{1,7})x([0-9]{1,7})(?:x([0-9]{1,7}))?")


class Violation(ValueError):
    """A request outside the contract. `field` is the field at fault, `code` one of OpenAI's words for the fault."""

    def __init__(self, message: str, field: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message, self.field, self.code = message, field, code


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that a request carries, by its name there; whoever opened it closes it."""

    name: str
    file: BinaryIO

    def __str__(self) -> str:
        return f"the file {self.name}"


def value_of(field: Field, raw: Any) -> Any:
    """`raw`, as JSON gave it, as the value of `field`. Lists come back as tuples. Raises Violation."""
    if field.rate:
        return _counted(field, raw)
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
    elif isinstance(value, Size) and (value.area > MAX_PIXELS or value.depth is not None):
        raise Violation(f"`{name}` may have at most {MAX_PIXELS} pixels, width x height", name)
    return value


def _counted(field: Field, raw: Any) -> int:
    """A length in seconds as a number of frames that the pipeline makes, the nearest to it."""
    seconds = raw
    if isinstance(raw, str) and _NUMBER.fullmatch(raw):
        seconds = float(raw)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise mistyped(field.name, "a number of seconds", raw)
    wanted = _finite(field.name, seconds) * field.rate
    domain = field.domain
    if isinstance(domain, Choices):
        values = [float(v) for v in domain.values]
        slack = field.rate / 2
    elif isinstance(domain, Range):
        low, high = domain.numbers
        step = domain.step or 1
        values = [low, high, low + step * round((wanted - low) / step)]
        values = [v for v in values if low <= v <= high]
        slack = step / 2
    else:
        values, slack = [max(1, round(wanted))], 0.5
    frames = min(values, key=lambda v: (abs(v - wanted), -v))
    if abs(frames - wanted) > slack:
        least, most = min(values) / field.rate, max(values) / field.rate
        limits = f"in {least:.2f}..{most:.2f}" if least < most else f"{most:.2f}"
        raise Violation(f"`{field.name}` must be {limits}, not {show(raw)}", field.name)
    return round(frames)


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
            return _finite(name, raw)
        case "size":
            if not isinstance(raw, str):
                raise mistyped(name, 'a size such as "1024x1024"', raw)
            match = _SIZE.fullmatch(raw)
            sides = [int(side) for side in match.groups() if side is not None] if match else []
            if not sides or 0 in sides:
                raise Violation(f'`{name}` must be a size such as "1024x1024", not {show(raw)}', name)
            return Size(*sides)
        case "image":
            return _picture(name, raw)
        case "json":
            return raw
    raise Violation(f"`{name}` cannot be given as JSON: it is of type `{type_}`", name, "unsupported_value")


def _finite(name: str, raw: int | float) -> float:
    try:
        value = float(raw)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise Violation(f"`{name}` must be a finite number", name)
    return value


def _picture(name: str, raw: Any) -> Upload:
    """A picture as it came: uploaded, or in a data URL, also as OpenAI's `{"image_url": …}`. It is not opened."""
    if isinstance(raw, Upload):
        return raw
    if isinstance(raw, dict) and raw.keys() == {"image_url"}:
        name, raw = f"{name}.image_url", raw["image_url"]
    if not isinstance(raw, str):
        raise mistyped(name, "a picture, as an upload or a data URL", raw)
    if raw.startswith(("http:", "https:")):
        raise Violation(f"`{name}`: pictures are not fetched; send it as an upload or a data URL", name)
    head, comma, data = raw.partition(",")
    if not head.startswith("data:") or not head.endswith(";base64") or not comma:
        raise Violation(f"`{name}` must be a data URL such as data:image/png;base64,…, not {show(raw)}", name)
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise Violation(f"`{name}` is not in base64", name) from None
    return Upload(name, io.BytesIO(content))


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
