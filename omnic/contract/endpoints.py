"""Served endpoints: which request fields they have, and how those bind to a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from omnic.contract.api import Api
from omnic.contract.domains import Choices
from omnic.contract.fields import (
    BindError,
    Endpoint,
    Field,
    Knob,
    ParamSpec,
    Signature,
    Slice,
    either,
    hint,
)  # fmt: skip
from omnic.contract.inputs import input_fields
from omnic.contract.openai import ENDPOINTS
from omnic.contract.types import Type

__all__ = [
    "ENDPOINTS", "BindError", "Endpoint", "Field", "Knob", "ParamSpec", "Signature", "Slice",
    "answers", "bind", "nearly", "offered",
]  # fmt: skip


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
    fields = list(input_fields(api, signature, renamed, entry, entry_type, taken))
    fields += _params(api, signature, renamed, taken, {f.name for f in fields})
    fields += _knobs(api, signature, {f.name for f in fields}, taken)
    fields += _standard(api, {f.name for f in fields}, dict(roles), taken)
    fields += _aliases(api, fields)
    fields += _timed(api, signature, fields, dict(roles))
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


def _api(name: str) -> Api:
    api = ENDPOINTS.get(name)
    if api is None:
        raise BindError(f"unknown endpoint `{name}`{hint(name, ENDPOINTS)}", id="unknown-endpoint")
    if api.later:
        raise BindError(api.later, id="not-supported-yet")
    return api


def _unbound(api: Api, signature: Signature, field: str, value: str) -> str:
    """Why an override binds nothing."""
    names = [*signature.inputs, *signature.outputs, *signature.params]
    if value not in names:
        return f"the pipeline has no input, output or param `{value}`{hint(value, names)}"
    parts = [api.input, *(e.name for e in api.extras), *(r.name for r in api.roles), *signature.params]
    return f"`{api.name}` has no field or part `{field}` that `{value}` could serve{hint(field, parts)}"


def _roles(
    api: Api, outputs: Mapping[str, Type], renamed: dict[str, str], produced: frozenset[str]
) -> tuple[tuple[str, str], ...]:
    """Which output fills each part of the answer. `produced` are the outputs of slices, empty if not known yet."""
    found: list[tuple[str, str]] = []
    for role in api.roles:
        shared = any(e.name == role.name for e in api.extras) and renamed.get(role.name) not in outputs
        named = None if shared else renamed.pop(role.name, None)
        fitting = [n for n, t in outputs.items() if t.kind == role.kind and (not produced or n in produced)]
        if named is not None and named not in fitting:
            raise BindError(f"`{api.name}` needs an output of type `{role.kind}` here; `{named}` is none", role.name)
        if named is None and len(fitting) > 1:
            raise BindError(
                f"`{api.name}` can answer with {either(fitting)}: say which, `{role.name} = {fitting[0]}`", role.name
            )
        if named or fitting:
            found.append((role.name, named or fitting[0]))
        elif role.name in api.needed:
            raise BindError(f"`{api.name}` needs an output of type `{role.kind}`; the pipeline has none", role.name)
    return tuple(found)


def _params(
    api: Api, signature: Signature, renamed: dict[str, str], taken: frozenset[str] | None, inputs: set[str]
) -> Iterator[Field]:
    under = {param: field for field, param in renamed.items() if param in signature.params}
    reserved = {*inputs, *(s.name.split(".", 1)[0] for s in api.standard)}
    known = dict(api.aliases)
    own = {*signature.params, *(knob.field for knob in signature.knobs)}  # of two, each keeps the name it has
    free = {"seed", "voice", *(place for _, place in api.nested)}  # of those, what a param may take over
    for name, spec in signature.params.items():
        field = under.get(name)
        if field is not None:
            del renamed[field]
        if field is not None and (field == "seed") != (name == "seed"):
            raise BindError("the field `seed` and the param `seed` are one: neither goes by another name", field)
        if taken is not None and name not in taken:
            continue
        field = known.get(field, field) if field else name if known.get(name) in own else known.get(name, name)
        field = dict(api.nested).get(field, field)
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
        domain, many = standard.domain, standard.many
        if isinstance(domain, Choices) and many:
            domain = Choices(tuple(v for v in domain.values if v in roles))
            many = len(domain.values)
        yield Field(
            standard.name, standard.type, target, argument, domain, standard.default, doc=standard.doc, many=many
        )


def _aliases(api: Api, fields: list[Field]) -> Iterator[Field]:
    present = {f.name: f for f in fields}
    for alias, name in api.aliases:
        if name in present and alias not in present:
            yield replace(present[name], name=alias, required=False, doc=f"another name of `{name}`")


def _timed(api: Api, signature: Signature, fields: list[Field], roles: dict[str, str]) -> Iterator[Field]:
    """Lengths in seconds, where the pipeline has the length in frames and the frames have a rate."""
    present = {f.name: f for f in fields}
    for name, counted in api.timed:
        rates = [signature.outputs[output].rate_hz for output in roles.values()]
        if name not in present and counted in present and rates and rates[0]:
            doc = f"seconds, at {rates[0]:g} a second moved to the nearest `{counted}`"
            yield replace(
                present[counted],
                name=name,
                type=Type("float"),
                default=None,
                required=False,
                doc=doc,
                rate=float(rates[0]),
            )
