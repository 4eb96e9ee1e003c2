"""A request body held against an endpoint's contract, before any work: `validate`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from omnic.contract.adapters import BASE
from omnic.contract.api import Unused
from omnic.contract.chat import conversation
from omnic.contract.fields import Endpoint, Field, Slice, hint
from omnic.contract.openai import DEFAULT_VOICE, ENDPOINTS, VOICE_FIELDS
from omnic.contract.values import AUTO, Violation, mistyped, not_blank, same, show, value_of
from omnic.expr import Expr, ExprError, evaluate, format_value, names

__all__ = ["Accepted", "Violation", "validate"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request inside the contract: what the generated method of `slice` is called with, and what is for the server.

    `arguments` holds what the request gave (the method has the defaults); `options` every field that the server
    honours itself, by its dotted name, defaults filled in, and `seed` (None if it is to be drawn).
    """

    arguments: dict[str, Any]
    options: dict[str, Any]
    slice: Slice


def validate(endpoint: Endpoint, body: Any, rules: tuple[Expr, ...] = (), *, asked: Slice | None = None) -> Accepted:
    """Raises Violation for the first thing in `body` that the endpoint does not take. `rules` are the pipeline's
    `require` rules; those over fields that this endpoint lacks do not concern it. `asked` is the slice to run where
    the body has no say in it."""
    if not isinstance(body, dict):
        raise Violation(f"the body must be a JSON object, not {show(body)}", None, "invalid_type")
    given = dict(_given(endpoint, body))
    present = {field.argument for field, _ in given.values()}
    for field in endpoint.fields:
        if field.required and field.argument not in present:
            raise Violation(f"`{field.name}` is missing", field.name, "missing_required_parameter")
    options = {f.name: f.default for f in endpoint.fields if f.target in ("server", "seed")} | {
        name: value for name, (field, value) in given.items() if field.target in ("server", "seed")
    }
    _consistent(endpoint, options, given)
    slice_ = asked or _slice(endpoint, options)
    arguments = dict(_arguments(endpoint, slice_, given))
    _hold(rules, endpoint, given)
    return Accepted(arguments, options, slice_)


def _given(endpoint: Endpoint, body: dict[str, Any]) -> Iterator[tuple[str, tuple[Field, Any]]]:
    """The fields that the body gives, each with its value; null counts as not given."""
    fields = {f.name: f for f in endpoint.fields}
    unused = {u.name: u for u in ENDPOINTS[endpoint.name].unused}
    for name, raw in _flat(_spread(fields, body), {f.split(".", 1)[0] for f in fields if "." in f}):
        field = fields.get(name)
        if raw is None:
            if field is None and name not in unused:
                raise _unknown(name, [*fields, *unused])
        elif field is None and name in unused:
            _harmless(unused[name], raw)
        elif field is None:
            raise _unknown(name, [*fields, *unused])
        elif raw == AUTO and field.type.kind == "size" and field.default is not None:
            continue
        elif raw == DEFAULT_VOICE and name in VOICE_FIELDS and field.default is not None:
            continue  # every pipeline that speaks knows its own voice by this name
        elif field.type.kind == "chat":
            yield name, (field, conversation(raw, field.type, name))
        else:
            value = value_of(_with_default_voice(field), raw)
            if field.type.kind == "text" and field.required and field.target.startswith(("entry", "input ")):
                not_blank(name, value)
            yield name, (field, value)


def _spread(fields: dict[str, Field], body: dict[str, Any]) -> dict[str, Any]:
    """`body` with each list of pictures as fields of their own: `image`, `image[1]`, …"""
    made = dict(body)
    for name, raw in body.items():
        if not isinstance(raw, list) or name not in fields or fields[name].type.kind != "image":
            continue
        if not raw:
            raise Violation(f"`{name}` is empty", name)
        names = [name, *(other for other in fields if other.startswith(f"{name}["))]
        if len(raw) > len(names):
            most = f"{len(names)} picture{'s' * (len(names) > 1)}"
            raise Violation(f"`{name}` takes at most {most} here, not {len(raw)}", name)
        made |= dict(zip(names, raw, strict=False))
    return made


def _flat(body: dict[str, Any], nested: set[str]) -> Iterator[tuple[str, Any]]:
    for name, raw in body.items():
        if name not in nested:
            yield name, raw
        elif raw is None:
            continue
        elif not isinstance(raw, dict):
            raise mistyped(name, "an object", raw)
        else:
            yield from ((f"{name}.{inner}", value) for inner, value in raw.items())


def _unknown(name: str, known: list[str]) -> Violation:
    return Violation(f"unknown field `{name}`{hint(name, known)}", name, "unknown_parameter")


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "number": (int, float), "integer": (int,), "array": (list,),
    "object": (dict,),
}  # fmt: skip


def _with_default_voice(field: Field) -> Field:
    """A field whose message names every voice that is taken."""
    if field.name not in VOICE_FIELDS or field.type.kind != "enum" or field.default is None:
        return field
    return replace(field, type=replace(field.type, args=tuple(dict.fromkeys((*field.type.args, DEFAULT_VOICE)))))


def _harmless(unused: Unused, raw: Any) -> None:
    if not any(_is(raw, kind) for kind in unused.json):
        raise mistyped(unused.name, f"of type {' or '.join(unused.json)}", raw)
    if unused.neutral is not None and not any(same(raw, value) for value in unused.neutral):
        raise Violation(f"`{unused.name}` cannot be {show(raw)}: {unused.doc}", unused.name, "unsupported_parameter")


def _is(raw: Any, kind: str) -> bool:
    return isinstance(raw, _JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(raw, bool))


def _consistent(endpoint: Endpoint, options: dict[str, Any], given: dict[str, tuple[Field, Any]]) -> None:
    """Fields that only mean something beside another."""
    if "stream_options.include_usage" in given and not options["stream"]:
        raise Violation("`stream_options` needs `stream` to be true", "stream_options")
    if options.get("partial_images") and not options["stream"]:
        raise Violation("`partial_images` needs `stream` to be true", "partial_images")
    if options.get("response_format") == "url" and options.get("stream"):
        raise Violation("a stream carries its pictures itself: `response_format` cannot be url", "response_format")
    if options.get("output_compression") not in (None, 100) and options["output_format"] == "png":
        raise Violation("`output_compression` needs `output_format` jpeg or webp", "output_compression")
    if "lora_scale" in given and (which := endpoint.field("lora")) is not None:
        scale, value = given["lora_scale"]
        if value != scale.default and given.get("lora", (which, which.default))[1] == BASE:
            raise Violation("`lora_scale` needs `lora` to name an adapter", "lora_scale")
    spoken = "modalities" not in options or "audio" in options["modalities"]
    for name in given:
        if name.startswith("audio.") and not spoken:
            raise Violation('`audio` needs "audio" in `modalities`', "audio")


def _slice(endpoint: Endpoint, options: dict[str, Any]) -> Slice:
    """The slice that gives what the request asks for."""
    asked = options.get("modalities")
    if asked is None:
        return endpoint.slices[0]
    outputs = dict(endpoint.outputs)
    for slice_ in endpoint.slices:
        if sorted(slice_.outputs) == sorted({outputs[role] for role in asked}):
            return slice_
    roles = {output: role for role, output in endpoint.outputs}
    offered = " or ".join(show([roles[o] for o in s.outputs]) for s in endpoint.slices)
    raise Violation(f"`modalities` must be {offered}, not {show(list(asked))}", "modalities")


def _arguments(endpoint: Endpoint, slice_: Slice, given: dict[str, tuple[Field, Any]]) -> Iterator[tuple[str, Any]]:
    values: dict[str, tuple[str, Any]] = {}
    for name, (field, value) in given.items():
        if not field.argument or field.target == "seed":
            continue
        if field.argument in values and values[field.argument][1] != value:
            other = values[field.argument][0]
            raise Violation(f"`{name}` and `{other}` mean the same and differ", name)
        values[field.argument] = (name, value)
        if field.argument in slice_.arguments:
            yield field.argument, value
        elif not same(value, field.default):
            needs = next((s for s in endpoint.slices if field.argument in s.arguments), None)
            roles = {output: role for role, output in endpoint.outputs}
            hint = f" unless `modalities` is {show([roles[o] for o in needs.outputs])}" if needs else ""
            raise Violation(f"`{name}` has no effect{hint}", name, "unsupported_parameter")


def _hold(rules: tuple[Expr, ...], endpoint: Endpoint, given: dict[str, tuple[Field, Any]]) -> None:
    """Raises Violation for the first rule that does not hold for the inputs and params, given or by default."""
    fields: dict[str, Field] = {}
    for field in endpoint.fields:
        if (name := _ruled(field)) is not None:
            fields.setdefault(name, field)
    said = {_ruled(field): value for field, value in given.values()}
    values = {name: said.get(name, field.default) for name, field in fields.items()}
    for rule in rules:
        used = tuple(dict.fromkeys(name.path[0] for name in names(rule)))
        if any(name not in fields for name in used):
            continue
        at = fields[next((name for name in used if name in said), used[0])].name
        try:
            holds = evaluate(rule, values)
        except ExprError as error:
            raise Violation(f"the rule `{rule}` cannot be applied: {error}", at) from None
        if not holds:
            shown = ", ".join(f"{fields[name].name} = {_shown(values[name])}" for name in used)
            raise Violation(f"the rule `{rule}` does not hold for {shown}", at, "rule_violated")


def _ruled(field: Field) -> str | None:
    """What rules call the value of a field; None for what they cannot be about."""
    kind, _, name = field.target.partition(" ")
    return name if kind in ("input", "param") else "seed" if kind == "seed" else None


def _shown(value: Any) -> str:
    text = format_value(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
