"""Served endpoints: which request fields they have, and how those bind to a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from omnic.contract.domains import Choices, Domain
from omnic.contract.openai import ENDPOINTS, Api, Standard
from omnic.contract.types import Type
from omnic.spelling import did_you_mean

__all__ = [
    "ENDPOINTS", "BindError", "Endpoint", "Field", "Knob", "ParamSpec", "Signature", "Slice",
    "answers", "bind", "nearly", "offered",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Knob:
    """A stage key that the source left open and the catalog offers to requests (`think.temperature`)."""

    stage: str
    key: str
    field: str  # its name in a request: "temperature"
    type: Type
    domain: Domain | None
    default: Any
    doc: str


@dataclass(frozen=True, slots=True)
class ParamSpec:
    type: Type
    domain: Domain | None
    default: Any
    doc: str = ""


@dataclass(frozen=True, slots=True)
class Signature:
    """What of a pipeline an endpoint can bind to: names to types, in source order."""

    inputs: dict[str, Type]
    outputs: dict[str, Type]
    params: dict[str, ParamSpec]
    knobs: tuple[Knob, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field a request may carry, resolved for one pipeline."""

    name: str  # dotted for nested ones: "audio.format"
    type: Type
    target: str  # "input NAME" | "param NAME" | "knob STAGE.KEY" | "entry" | "seed" | "server": who takes the value
    argument: str  # keyword of the generated method that receives it; "" for what the server itself honours
    domain: Domain | None = None
    default: Any = None
    required: bool = False
    doc: str = ""
    many: int = 0  # a list of at most this many values; 0 for a single one


@dataclass(frozen=True, slots=True)
class Slice:
    """The stages that run for a set of requested outputs, and the generated method that runs them."""

    method: str  # "chat_completions_reply_speech"
    outputs: tuple[str, ...]
    stages: tuple[str, ...]
    arguments: tuple[str, ...] = ()  # keywords the method takes; the server passes on those and no others


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A served endpoint of one pipeline."""

    name: str  # "chat.completions"
    fields: tuple[Field, ...]
    slices: tuple[Slice, ...]
    entry: str | None = None  # "speak.text" where the request enters the graph below its inputs
    outputs: tuple[tuple[str, str], ...] = ()  # role of the answer ("text", "audio") to output name

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)


class BindError(ValueError):
    """An endpoint that cannot be served by a pipeline. `field` is the field, role or override at fault, if one is;
    `id` says what kind of fault it is: unknown-endpoint, not-supported-yet or cannot-bind."""

    def __init__(self, message: str, field: str | None = None, *, id: str = "cannot-bind") -> None:
        super().__init__(message)
        self.message, self.field, self.id = message, field, id


def bind(
    name: str,
    signature: Signature,
    overrides: Mapping[str, str] | tuple[tuple[str, str], ...] = (),
    entry: str | None = None,
    slices: tuple[Slice, ...] = (),
    *,
    entry_type: Type | None = None,
) -> Endpoint:
    """The endpoint `name` of a pipeline: every field a request may carry and who takes its value.

    `overrides` say which input, param or output serves a field or role (`{"input": "text", "audio": "speech"}`).
    With slices that name their arguments, only what some slice takes becomes a field. Arguments go by the names of the
    pipeline here and in what is given back; codegen gives them Python's. Raises BindError.
    """
    api = _api(name)
    renamed = dict(overrides)
    taken = frozenset(a for s in slices for a in s.arguments) if any(s.arguments for s in slices) else None
    roles = _roles(api, signature.outputs, renamed, frozenset(o for s in slices for o in s.outputs))
    fields = [_input(api, signature, renamed, entry, entry_type)]
    fields += _params(api, signature, renamed, taken)
    fields += _knobs(api, signature, {f.name for f in fields}, taken)
    fields += _standard(api, {f.name for f in fields}, dict(roles), taken)
    fields += _aliases(api, fields)
    for left, value in renamed.items():
        raise BindError(_unbound(api, signature, left, value), left)
    return Endpoint(name, tuple(fields), slices, entry, roles)


def answers(
    name: str, outputs: Mapping[str, Type], overrides: Mapping[str, str] | tuple[tuple[str, str], ...] = ()
) -> tuple[tuple[str, ...], ...]:
    """The sets of outputs that requests to an endpoint may ask for, the default first. Raises BindError."""
    api = _api(name)
    roles = dict(_roles(api, outputs, dict(overrides), frozenset()))
    sets = (tuple(roles[r] for r in answer if r in roles) for answer in api.answers if set(answer) <= roles.keys())
    return tuple(dict.fromkeys(sets))


def offered(signature: Signature) -> tuple[str, ...]:
    """The endpoints that a pipeline without `serve` offers: those its types fit."""

    def fits(api: Api) -> bool:
        try:
            bind(api.name, signature)
        except BindError:
            return False
        return True

    return tuple(api.name for api in ENDPOINTS.values() if fits(api))


def nearly(signature: Signature) -> tuple[BindError, str] | None:
    """Why the first endpoint whose kinds of input and answer a pipeline has cannot be offered, and which that is."""
    inputs, outputs = ({t.kind for t in types.values()} for types in (signature.inputs, signature.outputs))
    for api in ENDPOINTS.values():
        needed = {api.role(role).kind for answer in api.answers[:1] for role in answer}
        if not api.later and api.input_kind in inputs and needed <= outputs:
            try:
                bind(api.name, signature)
            except BindError as error:
                return error, api.name
    return None


def _hint(name: str, names: Iterable[str]) -> str:
    hint = did_you_mean(name, names)
    return f"; {hint}" if hint else ""


def _api(name: str) -> Api:
    api = ENDPOINTS.get(name)
    if api is None:
        raise BindError(f"unknown endpoint `{name}`{_hint(name, ENDPOINTS)}", id="unknown-endpoint")
    if api.later:
        raise BindError(api.later, id="not-supported-yet")
    return api


def _unbound(api: Api, signature: Signature, field: str, value: str) -> str:
    """Why an override binds nothing."""
    names = [*signature.inputs, *signature.outputs, *signature.params]
    if value not in names:
        return f"the pipeline has no input, output or param `{value}`{_hint(value, names)}"
    parts = [api.input, *(r.name for r in api.roles), *signature.params]
    return f"`{api.name}` has no field or part `{field}` that `{value}` could serve{_hint(field, parts)}"


def _roles(
    api: Api, outputs: Mapping[str, Type], renamed: dict[str, str], produced: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    """Which output fills each part of the answer. `produced` are the outputs of slices, empty if not known yet."""
    needed = set(api.answers[0])
    found: list[tuple[str, str]] = []
    for role in api.roles:
        named = renamed.pop(role.name, None)
        fitting = [n for n, t in outputs.items() if t.kind == role.kind and (not produced or n in produced)]
        if named is not None and named not in fitting:
            raise BindError(f"`{api.name}` needs an output of type `{role.kind}` here; `{named}` is none", role.name)
        if named is None and len(fitting) > 1:
            raise BindError(
                f"`{api.name}` can answer with {_either(fitting)}: say which, `{role.name} = {fitting[0]}`", role.name
            )
        if named or fitting:
            found.append((role.name, named or fitting[0]))
        elif role.name in needed:
            raise BindError(f"`{api.name}` needs an output of type `{role.kind}`; the pipeline has none", role.name)
    return tuple(found)


def _either(names: list[str]) -> str:
    return " or ".join(f"`{n}`" for n in names)


def _input(
    api: Api, signature: Signature, renamed: dict[str, str], entry: str | None, entry_type: Type | None
) -> Field:
    named = renamed.pop(api.input, None)
    if entry is not None:
        type_ = entry_type or Type(api.input_kind)
        if type_.kind != api.input_kind:
            raise BindError(f"`{api.name}` gives `{api.input_kind}`; `{entry}` takes `{type_.kind}`", api.input)
        port = entry.rsplit(".", 1)[-1]
        return Field(api.input, _limited(api, type_), "entry", port, required=True)
    fitting = [n for n, t in signature.inputs.items() if t.kind == api.input_kind]
    if named is not None and named not in fitting:
        raise BindError(f"`{api.input}` must be an input of type `{api.input_kind}`; `{named}` is none", api.input)
    if not fitting:
        raise BindError(f"`{api.name}` needs an input of type `{api.input_kind}`; the pipeline has none", api.input)
    if named is None and len(fitting) > 1:
        raise BindError(f"`{api.input}` can be {_either(fitting)}: say which, `{api.input} = {fitting[0]}`", api.input)
    source = named or fitting[0]
    for other, type_ in signature.inputs.items():
        if other != source and not type_.optional:
            raise BindError(f"`{api.name}` has no field for the input `{other}`, which is required", other)
    type_ = signature.inputs[source]
    return Field(api.input, _limited(api, type_.required), f"input {source}", source, required=True)


def _limited(api: Api, type_: Type) -> Type:
    """`type_` with the API's own limit on its length."""
    if api.input_max_chars is None:
        return type_
    own = type_.bound("max_chars")
    limit = api.input_max_chars if own is None else min(int(own), api.input_max_chars)
    return replace(type_, bounds=(*((n, v) for n, v in type_.bounds if n != "max_chars"), ("max_chars", limit)))


def _params(api: Api, signature: Signature, renamed: dict[str, str], taken: frozenset[str] | None) -> Iterator[Field]:
    under = {param: field for field, param in renamed.items() if param in signature.params}
    reserved = {api.input, *(s.name.split(".", 1)[0] for s in api.standard)}
    free = {"seed", "voice", *(place for _, place in api.nested)}  # of those, what a param may take over
    for name, spec in signature.params.items():
        field = under.get(name)
        if field is not None:
            del renamed[field]
        if field is not None and (field == "seed") != (name == "seed"):
            raise BindError("the field `seed` and the param `seed` are one: neither goes by another name", field)
        if taken is not None and name not in taken:
            continue
        field = dict(api.nested).get(field or name, field or name)
        if field not in free and field.split(".", 1)[0] in reserved:
            raise BindError(
                f"param `{name}` has the name of another field of `{api.name}`; bind it to a field of its own", field
            )
        target = "seed" if field == "seed" else f"param {name}"
        required = spec.default is None and not spec.type.optional
        yield Field(field, spec.type.required, target, name, spec.domain, spec.default, required, spec.doc)


def _knobs(api: Api, signature: Signature, names: set[str], taken: frozenset[str] | None) -> Iterator[Field]:
    """Open knobs. One that several stages have is one field: its value goes to each of them."""
    seen = set(names)
    for knob in signature.knobs:
        name = dict(api.nested).get(knob.field, knob.field)
        if name == "seed" or name in seen or (taken is not None and knob.field not in taken):
            continue
        seen.add(name)
        many = 4 if knob.field == "stop" else 0
        default = () if many and knob.default is None else knob.default
        target = f"knob {knob.stage}.{knob.key}"
        yield Field(name, knob.type, target, knob.field, knob.domain, default, doc=knob.doc, many=many)


def _standard(api: Api, names: set[str], roles: dict[str, str], taken: frozenset[str] | None) -> Iterator[Field]:
    for standard in api.standard:
        if standard.name in names or (standard.role and standard.role not in roles):
            continue
        seed = standard.name == "seed"
        if seed and taken is not None and "seed" not in taken:
            continue  # pinned by the source
        target, argument = ("seed", "seed") if seed else ("server", "")
        domain = standard.domain
        if isinstance(domain, Choices) and standard.many:
            domain = Choices(tuple(v for v in domain.values if v in roles))
        yield _field(standard, target, argument, domain)


def _field(standard: Standard, target: str, argument: str, domain: Domain | None) -> Field:
    return Field(
        standard.name, standard.type, target, argument, domain, standard.default, doc=standard.doc, many=standard.many
    )


def _aliases(api: Api, fields: list[Field]) -> Iterator[Field]:
    present = {f.name: f for f in fields}
    for alias, name in api.aliases:
        if name in present and alias not in present:
            yield replace(present[name], name=alias, required=False, doc=f"another name of `{name}`")
