"""Which field of a request carries which input of the pipeline: `input_fields`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnic.contract.api import Api, Extra
from omnic.contract.fields import BindError, Field, Signature, either
from omnic.contract.types import Type


def input_fields(
    api: Api,
    signature: Signature,
    renamed: dict[str, str],
    entry: str | None,
    entry_type: Type | None,
    taken: frozenset[str] | None,
) -> Iterator[Field]:
    """The fields of an endpoint that carry inputs, the main one first. What of `renamed` names one is taken out.

    Raises BindError for an input that is required and has no field, and for a field that could be several inputs.
    """
    named = {field: renamed.pop(field) for field in (api.input, *(e.name for e in api.extras)) if field in renamed}
    if entry is not None:
        yield _entry(api, named, entry, entry_type)
        return
    free = dict(signature.inputs)
    carried: dict[str, list[str]] = {}  # field: the inputs it serves, in order
    for field, kind in ((api.input, api.input_kind), *((e.name, e.kind) for e in api.extras)):
        if (source := named.get(field)) is not None:
            if source not in free or free[source].kind != kind:
                raise BindError(f"`{field}` must be an input of type `{kind}`; `{source}` is none", field)
            carried[field] = [source]
            del free[source]
    for extra in (e for e in api.extras if e.inputs and e.name not in carried):
        for source in [n for n in extra.inputs if n in free and free[n].kind == extra.kind][:1]:
            carried[extra.name] = [source]
            del free[source]
    if api.input not in carried:
        carried[api.input] = [_main(api, free)]
        del free[carried[api.input][0]]
    for extra in (e for e in api.extras if not e.inputs):
        _rest(api, extra, free, carried)
    own = [n for n, t in free.items() if t.kind in api.open]
    for other, type_ in free.items():
        if not type_.optional and other not in own:
            raise BindError(f"`{api.name}` has no field for the input `{other}`, which is required", other)
    yield from _fields(api, signature, carried, own, taken)


def _entry(api: Api, named: dict[str, str], entry: str, entry_type: Type | None) -> Field:
    for field, source in named.items():
        raise BindError(f"`{api.name}` enters at `{entry}`, below `{source}`", field)
    type_ = entry_type or Type(api.input_kind)
    if type_.kind != api.input_kind:
        raise BindError(f"`{api.name}` gives `{api.input_kind}`; `{entry}` takes `{type_.kind}`", api.input)
    return Field(api.input, _limited(api, type_), "entry", entry.rsplit(".", 1)[-1], required=True)


def _main(api: Api, free: dict[str, Type]) -> str:
    """The input that the endpoint works on."""
    fitting = [n for n, t in free.items() if t.kind == api.input_kind]
    if api.input in fitting and api.extras:
        return api.input
    if not fitting:
        raise BindError(f"`{api.name}` needs an input of type `{api.input_kind}`; the pipeline has none", api.input)
    if len(fitting) > 1:
        raise BindError(f"`{api.input}` can be {either(fitting)}: say which, `{api.input} = {fitting[0]}`", api.input)
    return fitting[0]


def _rest(api: Api, extra: Extra, free: dict[str, Type], carried: dict[str, list[str]]) -> None:
    """Gives a field the inputs of its kind that nothing serves yet."""
    found = carried.get(extra.name, [])
    fitting = [n for n, t in free.items() if t.kind == extra.kind]
    if not found and not fitting and extra.required:
        raise BindError(f"`{api.name}` needs an input of type `{extra.kind}`; the pipeline has none", extra.name)
    if not extra.many and len(fitting) > 1 and not found:
        message = f"`{extra.name}` can be {either(fitting)}: say which, `{extra.name} = {fitting[0]}`"
        raise BindError(message, extra.name)
    more = fitting if extra.many else [] if found else fitting
    for source in more:
        del free[source]
    if found or more:
        carried[extra.name] = [*found, *more]


def _fields(
    api: Api, signature: Signature, carried: dict[str, list[str]], own: list[str], taken: frozenset[str] | None
) -> Iterator[Field]:
    def field(name: str, source: str, required: bool, doc: str) -> Iterator[Field]:
        type_ = signature.inputs[source]
        if taken is None or source in taken or name == api.input:
            limited = _limited(api, type_.required) if name == api.input else type_.required
            yield Field(name, limited, f"input {source}", source, required=required or not type_.optional, doc=doc)

    yield from field(api.input, carried[api.input][0], True, "")
    for extra in api.extras:
        for index, source in enumerate(carried.get(extra.name, ())):
            name = f"{extra.name}[{index}]" if index else extra.name
            yield from field(name, source, extra.required and not index, "" if index else extra.doc)
    for source in own:
        yield from field(source, source, False, "")


def _limited(api: Api, type_: Type) -> Type:
    """`type_` with the API's own limit on its length."""
    if api.input_max_chars is None:
        return type_
    given = type_.bound("max_chars")
    limit = api.input_max_chars if given is None else min(int(given), api.input_max_chars)
    return replace(type_, bounds=(*((n, v) for n, v in type_.bounds if n != "max_chars"), ("max_chars", limit)))
