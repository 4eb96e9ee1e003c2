"""The types of ports: what they are, how they print and parse, and when one may feed another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from omnic.expr import ExprError, Quantity, Reader, Size, format_value, parse_literal, quote


@dataclass(frozen=True, slots=True)
class Rate:
    """`16 @ 12.5Hz`: a width and how often it comes."""

    width: int
    rate: Quantity

    def __str__(self) -> str:
        return f"{self.width} @ {self.rate}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """`/8` or `/4x8x8`: by how much latents are smaller than what they encode, per axis."""

    factors: tuple[int, ...]

    def __str__(self) -> str:
        return "/" + "x".join(map(str, self.factors))


@dataclass(frozen=True, slots=True)
class Dims:
    """`[77, d]`: dimensions, by number or by name."""

    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True, slots=True)
class Type:
    """A type as written: `audio<24kHz, seconds = 60>?` has kind `audio`, one arg, one bound, and is optional."""

    kind: str
    args: tuple[Arg, ...] = ()
    bounds: tuple[tuple[str, int | float], ...] = ()
    optional: bool = False

    def __str__(self) -> str:
        mark = "?" if self.optional else ""
        if self.kind == "enum":
            return f"enum({', '.join(quote(str(a)) for a in self.args)}){mark}"
        parts = [str(a) for a in self.args] + [f"{name} = {format_value(value)}" for name, value in self.bounds]
        return f"{self.kind}<{', '.join(parts)}>{mark}" if parts else self.kind + mark

    def bound(self, name: str) -> int | float | None:
        return dict(self.bounds).get(name)

    @property
    def required(self) -> Type:
        """This type without `?`."""
        return replace(self, optional=False) if self.optional else self

    @property
    def rate_hz(self) -> float | None:
        """Units a second of `audio`, `video`, `codes` and `embeds`; None where the type does not say."""
        for arg in self.args:
            if isinstance(arg, Quantity):
                return arg.base
            if isinstance(arg, Rate):
                return arg.rate.base
        return None

    @property
    def width(self) -> int | None:
        """D of `hidden<D>` and `embeds<D>`, Q of `codes<Q @ rate>`, C of `latents<C, …>`."""
        for arg in self.args:
            if isinstance(arg, Rate):
                return arg.width
            if isinstance(arg, int):
                return arg
        return None


@dataclass(frozen=True, slots=True)
class Kind:
    """What may stand in the brackets of a type. `slots` names each positional argument and what it is."""

    doc: str
    slots: tuple[tuple[str, str], ...] = ()
    variadic: bool = False
    needs: int = 0
    bounds: tuple[str, ...] = ()
    media: bool = False  # carried by a request or an answer as data, not as a JSON scalar


MODALITIES = ("text", "image", "audio", "video")
KINDS: dict[str, Kind] = {
    "text": Kind("text", bounds=("max_tokens", "tokens", "max_chars"), media=True),
    "chat": Kind(
        "messages of a conversation",
        (("modality", "modality"),),
        variadic=True,
        bounds=("tokens", "images", "pixels", "seconds"),
        media=True,
    ),
    "tokens": Kind("token ids", bounds=("tokens", "max_tokens")),
    "embeds": Kind("embeddings", (("width", "width|rate"),), needs=1, bounds=("tokens",)),
    "hidden": Kind("hidden states", (("width", "width"),), needs=1, bounds=("tokens",)),
    "codes": Kind("codec codes", (("codebooks and rate", "rate"),), needs=1, bounds=("seconds",)),
    "latents": Kind("latents", (("channels", "width"), ("scale", "ratio")), bounds=("frames", "pixels")),
    "image": Kind("an image", bounds=("pixels",), media=True),
    "video": Kind(
        "a video, with sound or without",
        (("frame rate", "fps"), ("sound", "audio")),
        bounds=("seconds", "frames", "pixels"),
        media=True,
    ),
    "audio": Kind("sound", (("sample rate", "frequency"),), bounds=("seconds",), media=True),
    "state": Kind("KV or denoise state of a part", (("part", "name"),)),
    "action": Kind("robot actions", (("steps", "width"), ("width", "width"))),
    "tensor": Kind("a tensor", (("dtype", "name"), ("dims", "dims"))),
    "int": Kind("a whole number"),
    "float": Kind("a number"),
    "bool": Kind("true or false"),
    "size": Kind("width x height in pixels"),
    "seed": Kind("a seed, 0 to 2^63 - 1"),
    "json": Kind("any JSON value", media=True),
    "enum": Kind("one of the listed words", (("value", "string"),), variadic=True, needs=1),
}


Arg: TypeAlias = Type | str | int | float | Quantity | Size | Rate | Ratio | Dims


def problems(type_: Type) -> Iterator[str]:
    """What is wrong with a type by itself: unknown kind, arguments that do not fit, unknown bounds."""
    kind = KINDS.get(type_.kind)
    if kind is None:
        yield f"unknown type `{type_.kind}`"
        return
    if len(type_.args) < kind.needs:
        yield f"`{type_.kind}` needs its {kind.slots[len(type_.args)][0]}"
    if len(type_.args) > len(kind.slots) and not kind.variadic:
        most = len(kind.slots)
        yield f"`{type_.kind}` takes {f'at most {most} argument' + 's' * (most > 1) if most else 'no arguments'}"
    for index, arg in enumerate(type_.args):
        slot = kind.slots[-1] if kind.variadic else kind.slots[index] if index < len(kind.slots) else None
        if slot and not _fits(slot[1], arg):
            hint = " (one of text, image, audio, video)" if slot[1] == "modality" else ""
            yield f"`{arg}` is not the {slot[0]} of `{type_.kind}`{hint}"
        if isinstance(arg, Type) and slot and slot[1] == "audio":
            yield from problems(arg)
    for name, value in type_.bounds:
        if name not in kind.bounds:
            known = f"has {', '.join(kind.bounds)}" if kind.bounds else "has no bounds"
            yield f"`{type_.kind}` has no bound `{name}`; it {known}"
        elif value <= 0:
            yield f"bound `{name}` must be positive"


def _fits(slot: str, arg: object) -> bool:
    match slot:
        case "modality":
            return isinstance(arg, Type) and arg == Type(arg.kind) and arg.kind in MODALITIES
        case "width":
            return isinstance(arg, int) and arg > 0
        case "width|rate":
            return isinstance(arg, Rate) or (isinstance(arg, int) and arg > 0)
        case "rate":
            return isinstance(arg, Rate) and arg.rate.dimension == "Hz"
        case "ratio":
            return isinstance(arg, Ratio)
        case "fps":
            return isinstance(arg, Quantity) and arg.dimension == "fps" and arg.base > 0
        case "frequency":
            return isinstance(arg, Quantity) and arg.dimension == "Hz" and arg.base > 0
        case "audio":
            return isinstance(arg, Type) and arg.kind == "audio"
        case "name":
            return isinstance(arg, Type) and not arg.args
        case "dims":
            return isinstance(arg, Dims)
        case "string":
            return isinstance(arg, str)
    return False


def mismatch(source: Type, target: Type) -> str | None:
    """Why a value of type `source` cannot feed a port of type `target`, or None if it can.

    Where both state an argument they must agree; where one leaves it open, anything goes. Bounds are no part
    of it (they are checked when a request comes), nor is optionality.
    """
    if source.kind != target.kind:
        return f"`{source.kind}` is not `{target.kind}`"
    if source.kind == "chat":
        extra = [str(a) for a in source.args if target.args and a not in target.args]
        return f"{' and '.join(extra)} {'is' if len(extra) == 1 else 'are'} not accepted" if extra else None
    for mine, theirs in zip(source.args, target.args, strict=False):
        if isinstance(mine, Type) and isinstance(theirs, Type):
            if reason := mismatch(mine, theirs):
                return reason
        elif isinstance(mine, Quantity) and isinstance(theirs, Quantity):
            if mine.base != theirs.base:
                return f"{mine} is not {theirs}"
        elif isinstance(mine, Rate) and isinstance(theirs, Rate):
            if (mine.width, mine.rate.base) != (theirs.width, theirs.rate.base):
                return f"{mine} is not {theirs}"
        elif isinstance(mine, Dims) and isinstance(theirs, Dims):
            if len(mine.dims) != len(theirs.dims):
                return f"rank {len(mine.dims)} is not rank {len(theirs.dims)}: {mine} against {theirs}"
            if any(
                isinstance(a, int) and isinstance(b, int) and a != b
                for a, b in zip(mine.dims, theirs.dims, strict=True)
            ):
                return f"{mine} is not {theirs}"
        elif mine != theirs:
            return f"{mine} is not {theirs}"
    return None


def parse_type(text: str) -> Type:
    """The type in `text`, in the syntax that `str` prints. Raises ExprError."""
    reader = Reader(text)
    type_ = type_from(reader)
    reader.end()
    return type_


def type_from(reader: Reader) -> Type:
    token = reader.next()
    if token.kind != "name":
        raise reader.error("expected a type")
    args: list[Arg] = []
    bounds: list[tuple[str, int | float]] = []
    if reader.take("("):
        while not reader.take(")"):
            args.append(str(parse_literal(reader.next())))
            if not reader.take(","):
                reader.expect(")")
                break
    elif reader.take("<"):
        while not reader.take(">"):
            _type_arg(reader, args, bounds)
            if not reader.take(","):
                reader.expect(">")
                break
    return Type(token.text, tuple(args), tuple(bounds), reader.take("?"))


def _type_arg(reader: Reader, args: list[Arg], bounds: list[tuple[str, int | float]]) -> None:  # fmt: skip
    token = reader.token
    if token.kind == "name" and reader.tokens[reader.at + 1].text == "=":
        reader.at += 2
        bounds.append((token.text, bound_value(parse_literal(reader.next()))))
    elif token.kind == "name":
        args.append(type_from(reader))
    elif reader.take("/"):
        literal = parse_literal(reader.next())
        args.append(ratio(literal))
    elif reader.take("["):
        dims: list[int | str] = []
        while not reader.take("]"):
            item = reader.next()
            dims.append(int(item.text) if item.kind == "number" else item.text)
            if not reader.take(","):
                reader.expect("]")
                break
        args.append(Dims(tuple(dims)))
    else:
        if token.kind not in ("number", "quantity", "size", "string"):
            raise reader.error("expected an argument of a type")
        value = parse_literal(reader.next())
        if isinstance(value, int) and reader.take("@"):
            rate = parse_literal(reader.next())
            if not isinstance(rate, Quantity):
                raise reader.error("expected a rate such as 12.5Hz")
            args.append(Rate(value, rate))
        else:
            args.append(value)


def ratio(literal: object) -> Ratio:
    """`/8` (a number) or `/8x8`, `/4x8x8` (a size) as a ratio. Raises ExprError."""
    if isinstance(literal, Size):
        return Ratio((literal.width, literal.height) + ((literal.depth,) if literal.depth is not None else ()))
    if isinstance(literal, int):
        return Ratio((literal,))
    raise ExprError(f"`/{literal}` is not a scale such as /8 or /4x8x8")


def bound_value(literal: object) -> int | float:
    """The value of a bound: a number, a quantity in its base unit, or the area of a size. Raises ExprError."""
    if isinstance(literal, Quantity):
        return literal.base
    if isinstance(literal, Size):
        return literal.area
    if isinstance(literal, int | float):
        return literal
    raise ExprError(f"`{literal}` is not a bound")
