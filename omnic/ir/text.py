"""The text form of a pipeline: `dump` prints it, `parse` reads it back, and `parse(dump(p)) == p`.

The first line of an op says what it is (dataflow, types), indented lines how it runs (settings). A setting that the
planner decided stands bare; any other says where it came from: `slots = 4 from deploy`. Spans and reasons are not
carried. A word is a string, `%name` a param, anything with an operator or a call an expression.

Read by hand on `omnic.expr.Reader`, since types, domains and expressions are: the syntax of those is one thing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from omnic.contract.domains import domain_from
from omnic.contract.types import Type, type_from
from omnic.expr import Expr, ExprError, Literal, Name, Reader, format_value, parse_from, parse_literal, quote, tokenize
from omnic.ir.pipeline import (
    Channel,
    Device,
    Endpoint,
    Input,
    Model,
    Open,
    Output,
    Param,
    Pipeline,
    Setting,
    Settings,
    Slice,
    Stage,
)

_ORIGINS = {"flag": "flag", "deploy": "deploy block", "stage": "stage block", "catalog": "catalog default"}
_MARKS = {origin: mark for mark, origin in _ORIGINS.items()}
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(["open", "none", "true", "false", "and", "or", "not", "from", "in", "step"])


class IRError(ValueError):
    """Text that is not a pipeline. The message says where."""


# --- print ------------------------------------------------------------------------------------------------------------


def dump(pipeline: Pipeline) -> str:
    """`pipeline` as text, the same for equal pipelines. It must satisfy `verify`."""
    return "\n".join((f"pipeline @{pipeline.name} target {quote(pipeline.target)} {{", *_lines(pipeline), "}", ""))


def _lines(p: Pipeline) -> Iterator[str]:
    for model in p.models:
        revision = f" revision {quote(model.revision)}" if model.revision is not None else ""
        yield f"  model @{model.name} {_source(model.source)} family {model.family}{revision}"
    for given in p.inputs:
        yield f"  %{given.name} = input : !{given.type}"
    for param in p.params:
        default = "" if param.default is None else f" = {format_value(param.default)}"
        domain = "" if param.domain is None else f" in {param.domain}"
        yield f"  param %{param.name} : !{param.type}{default}{domain}"
    yield from (f"  require {rule}" for rule in p.requires)
    yield from (f"  limit {rule}" for rule in p.limits)
    shown = 0
    for stage in p.stages:
        feeding = [i for i, c in enumerate(p.channels) if c.name in {source for _, source in stage.inputs}]
        last = max(feeding, default=-1) + 1
        for channel in p.channels[shown:last]:
            yield from _channel(channel)
        shown = max(shown, last)
        yield from _stage(stage)
    for channel in p.channels[shown:]:
        yield from _channel(channel)
    for output in p.outputs:
        yield f"  output {output.name} : !{output.type} = %{output.source}"
    for endpoint in p.endpoints:
        yield _endpoint(endpoint)
    for device in p.devices:
        items = ", ".join(f"{quote(name)}: {n}" for name, n in device.items)
        yield f"  device {device.name} capacity {device.capacity_bytes} {{{items}}}"


def _source(source: str) -> str:
    """A model's source as written where it reads as one call, else quoted."""
    try:
        reader = _Reader(source)
        return source if _call(reader) == source and reader.token.kind == "end" else quote(source)
    except IRError:
        return quote(source)


def _stage(stage: Stage) -> Iterator[str]:
    results = ", ".join(f"%{stage.name}.{port}" for port, _ in stage.outputs) or f"%{stage.name}"
    types = ", ".join(f"!{type_}" for _, type_ in stage.outputs)
    args = ", ".join(f"{port}{'?' * (port in stage.optional)} = %{source}" for port, source in stage.inputs)
    if stage.model is not None:
        part = f"@{stage.model}::{stage.part}"
    else:
        part = f"std::{stage.part}" if _WORD.fullmatch(stage.part) else quote(stage.part)
    yield f"  {results} = {stage.kind} {part}({args})" + (f" : {types}" if types else "")
    if stage.keys:
        yield f"      with {_settings(stage.keys)}"
    if stage.how:
        (first, on), rest = stage.how[0], stage.how[1:]
        if first == "on" and isinstance(on.value, tuple) and on.value and all(map(_is_word, on.value)):
            yield f"      on {', '.join(on.value)}{_origin(on)}" + (f" {_settings(rest)}" if rest else "")
        else:
            yield f"      how {_settings(stage.how)}"


def _channel(channel: Channel) -> Iterator[str]:
    yield f"  %{channel.name} = channel(%{channel.source}) -> {channel.target} : !{channel.type}"
    if channel.how:
        yield f"      {_settings(channel.how)}"


def _endpoint(endpoint: Endpoint) -> str:
    entry = f" entry {endpoint.entry}" if endpoint.entry is not None else ""
    fields = ", ".join(f"{field} = {name}" for field, name in endpoint.fields)
    slices = ", ".join(f"{' + '.join(s.outputs)}: [{', '.join(s.stages)}]" for s in endpoint.slices)
    fields = f" fields {{{fields}}}" if fields else ""
    return f"  endpoint {endpoint.name}{entry}{fields}" + (f" slices {{{slices}}}" if slices else "")


def _settings(settings: Settings) -> str:
    return f"{{{', '.join(f'{name} = {_value(s.value)}{_origin(s)}' for name, s in settings)}}}"


def _origin(setting: Setting) -> str:
    return "" if setting.origin == "planner" else f" from {_MARKS[setting.origin]}"


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None and value not in _RESERVED


def _value(value: Any) -> str:
    match value:
        case Open(field=field, type=type_, default=default, domain=domain):
            within = "" if domain is None else f" in {domain}"
            return f"open {quote(field)} : !{type_} = {format_value(default)}{within}"
        case Name(path=path):
            return f"%{'.'.join(path)}"
        case Expr():
            return str(value)
        case str() if _is_word(value):
            return value
        case tuple() | list():
            return f"[{', '.join(map(_value, value))}]"
    return format_value(value)


# --- parse ------------------------------------------------------------------------------------------------------------

T = TypeVar("T")


class _Reader(Reader):
    """A reader of a whole file: `//` lines are comments, errors say line and column."""

    def __init__(self, text: str) -> None:
        self.text = re.sub(r"(?m)^[ \t]*//.*$", lambda m: " " * len(m[0]), text)
        try:
            self.tokens, self.at = tokenize(self.text), 0
        except ExprError as error:
            raise IRError(str(error).partition(" of `")[0]) from None

    def error(self, message: str) -> IRError:  # type: ignore[override]  # of the same use, with its own place
        line = self.text.count("\n", 0, self.token.start) + 1
        column = self.token.start - self.text.rfind("\n", 0, self.token.start)
        found = f"`{self.token.text}`" if self.token.text else "the end"
        return IRError(f"line {line}, column {column}: {message}, found {found}")

    def word(self) -> str:
        if self.token.kind != "name":
            self.fail("expected a name")
        return self.next().text

    def path(self) -> str:
        parts = [self.word()]
        while self.take("."):
            parts.append(self.word())
        return ".".join(parts)

    def string(self) -> str:
        if self.token.kind != "string":
            self.fail("expected a string")
        return str(parse_literal(self.next()))

    def number(self) -> int:
        if self.token.kind != "number" or not self.token.text.isdigit():
            self.fail("expected a whole number")
        return int(self.next().text)

    def type(self) -> Type:
        self.expect("!")
        return type_from(self)

    def many(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """Items separated by commas, up to `close`."""
        items: list[T] = []
        while not self.take(close):
            items.append(item())
            if not self.take(","):
                self.expect(close)
                break
        return tuple(items)

    def fail(self, message: str) -> NoReturn:
        raise self.error(message)


def parse(text: str) -> Pipeline:
    """The pipeline in `text`. Raises IRError. What it says is not verified; `verify` does that."""
    reader = _Reader(text)
    try:
        return _pipeline(reader)
    except ExprError as error:  # from the readers of literals and types
        raise IRError(str(error)) from None


def _pipeline(r: _Reader) -> Pipeline:
    r.expect("pipeline")
    r.expect("@")
    name = r.word()
    r.expect("target")
    target = r.string()
    r.expect("{")
    found: dict[str, list[Any]] = {}
    while not r.take("}"):
        kind, item = _statement(r)
        found.setdefault(kind, []).append(item)
    r.end()
    return Pipeline(name, target, **{kind: tuple(items) for kind, items in found.items()})


def _statement(r: _Reader) -> tuple[str, Any]:
    """The field of Pipeline that a statement adds to, and what it adds."""
    if r.take("%"):
        return _result(r)
    match r.word():
        case "model":
            r.expect("@")
            name = r.word()
            source = r.string() if r.token.kind == "string" else _call(r)
            r.expect("family")
            family = r.word()
            return "models", Model(name, source, family, r.string() if r.take("revision") else None)
        case "param":
            r.expect("%")
            name = r.word()
            r.expect(":")
            type_, default = r.type(), _literal(r) if r.take("=") else None
            return "params", Param(name, type_, default, domain_from(r) if r.take("in") else None)
        case "require":
            return "requires", parse_from(r)
        case "limit":
            return "limits", parse_from(r)
        case "output":
            name = r.word()
            r.expect(":")
            type_ = r.type()
            r.expect("=")
            r.expect("%")
            return "outputs", Output(name, type_, r.path())
        case "endpoint":
            return "endpoints", _read_endpoint(r)
        case "device":
            name = r.word()
            r.expect("capacity")
            capacity = r.number()
            r.expect("{")
            return "devices", Device(name, capacity, r.many(lambda: _item(r), "}"))
    r.at -= 1
    return r.fail("expected a statement")


def _result(r: _Reader) -> tuple[str, Any]:
    """After the first `%`: an input, a channel or a stage."""
    results = [r.path()]
    while r.take(","):
        r.expect("%")
        results.append(r.path())
    r.expect("=")
    if r.take("input"):
        r.expect(":")
        return "inputs", Input(results[0], r.type())
    if r.take("channel"):
        r.expect("(")
        r.expect("%")
        source = r.path()
        r.expect(")")
        r.expect("->")
        target = f"output {r.word()}" if r.take("output") else r.path()
        r.expect(":")
        type_ = r.type()
        return "channels", Channel(results[0], source, target, type_, _read_settings(r) if r.take("{") else ())
    return "stages", _read_stage(r, results)


def _read_stage(r: _Reader, results: list[str]) -> Stage:
    kind, model = r.word(), None
    if r.token.kind == "string":
        part = r.string()
    else:
        owner = r.word() if r.take("@") else None
        if owner is None:
            r.expect("std")
        model = owner
        r.expect(":")
        r.expect(":")
        part = r.word()
    r.expect("(")
    wired = r.many(lambda: _wire(r), ")")
    types = [r.type()] if r.take(":") else []
    while types and r.take(","):
        types.append(r.type())
    name = results[0].rpartition(".")[0] if types else results[0]
    ports = [result.removeprefix(f"{name}.") for result in results] if types else []
    if len(ports) != len(types):
        r.fail(f"expected {len(ports)} types for the results of `{name}`")
    keys: Settings = ()
    how: Settings = ()
    if r.take("with"):
        r.expect("{")
        keys = _read_settings(r)
    if r.take("on"):
        devices = [r.word()]
        while r.take(","):
            devices.append(r.word())
        how = (("on", Setting(tuple(devices), _read_origin(r))),)
        if r.take("{"):
            how += _read_settings(r)
    elif r.take("how"):
        r.expect("{")
        how = _read_settings(r)
    inputs = tuple((port, source) for port, source, _ in wired)
    optional = tuple(port for port, _, absent in wired if absent)
    return Stage(name, kind, model, part, inputs, tuple(zip(ports, types, strict=True)), optional, keys, how)


def _wire(r: _Reader) -> tuple[str, str, bool]:
    port, optional = r.word(), r.take("?")
    r.expect("=")
    r.expect("%")
    return port, r.path(), optional


def _read_endpoint(r: _Reader) -> Endpoint:
    name = r.path()
    entry = r.path() if r.take("entry") else None
    fields: tuple[tuple[str, str], ...] = ()
    slices: tuple[Slice, ...] = ()
    if r.take("fields"):
        r.expect("{")
        fields = r.many(lambda: _field(r), "}")
    if r.take("slices"):
        r.expect("{")
        slices = r.many(lambda: _slice(r), "}")
    return Endpoint(name, entry, fields, slices)


def _field(r: _Reader) -> tuple[str, str]:
    field = r.path()
    r.expect("=")
    return field, r.path()


def _slice(r: _Reader) -> Slice:
    outputs = [r.word()]
    while r.take("+"):
        outputs.append(r.word())
    r.expect(":")
    r.expect("[")
    return Slice(tuple(outputs), r.many(r.path, "]"))


def _item(r: _Reader) -> tuple[str, int]:
    name = r.string()
    r.expect(":")
    return name, r.number()


def _read_settings(r: _Reader) -> Settings:
    return r.many(lambda: _setting(r), "}")


def _setting(r: _Reader) -> tuple[str, Setting]:
    name = r.path()
    r.expect("=")
    value = _read_value(r)
    return name, Setting(value, _read_origin(r))


def _read_origin(r: _Reader) -> str:
    if not r.take("from"):
        return "planner"
    mark = r.word()
    return _ORIGINS[mark] if mark in _ORIGINS else r.fail(f"expected one of {', '.join(_ORIGINS)} before")


def _read_value(r: _Reader) -> Any:
    if r.take("%"):
        return Name(tuple(r.path().split(".")))
    if r.take("["):
        return r.many(lambda: _read_value(r), "]")
    if r.token.text == "open" and r.tokens[r.at + 1].kind == "string":
        r.next()
        field = r.string()
        r.expect(":")
        type_ = r.type()
        r.expect("=")
        default = _literal(r)
        return Open(field, type_, default, domain_from(r) if r.take("in") else None)
    expr = parse_from(r)
    if isinstance(expr, Literal):
        return expr.value
    if not isinstance(expr, Name):
        return expr
    if len(expr.path) > 1:
        r.fail(f"`{expr}` is no word; expected `%{expr}` before")
    return expr.path[0]


def _literal(r: _Reader) -> Any:
    """A value in which words do not stand for strings."""
    if r.take("["):
        return r.many(lambda: _literal(r), "]")
    match parse_from(r, 7):  # a sign binds that tightly; nothing looser belongs to a literal
        case Literal(value=value):
            return value
    return r.fail("expected a literal before")


def _call(r: _Reader) -> str:
    """The text of `name(…)`, as written."""
    start, depth = r.token.start, 0
    r.word()
    while True:
        token = r.next()
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "op" else 0
        if token.kind == "end" or (not depth and token.text != ")"):
            r.fail("expected `name(…)`")
        if not depth:
            return r.text[start : token.start + 1]
