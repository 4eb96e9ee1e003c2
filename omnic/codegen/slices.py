"""Views of the served slices: one method each."""

from __future__ import annotations

import keyword
from dataclasses import dataclass

from omnic.codegen import layout
from omnic.codegen import python as py
from omnic.codegen.body import Argument, Body
from omnic.codegen.names import Names
from omnic.codegen.stages import settled
from omnic.expr import names as names_in
from omnic.ir.pipeline import Endpoint, Pipeline, Slice, get


@dataclass(frozen=True, slots=True)
class SliceView:
    """One method of the generated class."""

    method: str
    endpoint: str
    outputs: tuple[str, ...]
    stages: tuple[str, ...]
    arguments: tuple[Argument, ...]
    signature: str
    doc: tuple[str, ...]
    lines: tuple[str, ...]


def slice_views(pipeline: Pipeline, names: Names, constants: frozenset[str]) -> tuple[SliceView, ...]:
    return tuple(_view(pipeline, names, e, s, constants) for e in pipeline.endpoints for s in e.slices)


def _view(pipeline: Pipeline, names: Names, endpoint: Endpoint, slice_: Slice, constants: frozenset[str]) -> SliceView:
    body = Body(pipeline, names, endpoint, slice_)
    arguments = tuple(body.arguments())
    method = names.method(endpoint, slice_)
    entry = names.entries.get(endpoint.name)
    checks = [
        _check(a, names.constants[a.field])
        for a in arguments
        if a.name != entry and names.constants[a.field] in constants
    ]
    present = {a.field: a.name for a in arguments if a.name != entry}
    for constant, rule in zip(names.rules, pipeline.requires, strict=True):
        needed = sorted({name.path[0] for name in names_in(rule)})
        if all(name in present for name in needed):
            checks.append(
                layout.call(f"{constant}.require", [_keyword(name, present[name]) for name in needed], indent=8)
            )
    seed = next((s.value for st in body.stages if (s := get(st.keys, "seed")) and settled(s.value)), None)
    parameters = ["self", "*", *map(str, arguments)]
    enters = f", entering at {endpoint.entry}" if endpoint.entry else ""
    return SliceView(
        method=method,
        endpoint=endpoint.name,
        outputs=slice_.outputs,
        stages=slice_.stages,
        arguments=arguments,
        signature=layout.call(f"def {method}", parameters, " -> Flow:", indent=4),
        doc=layout.docstring(
            f"{endpoint.name} for {' and '.join(slice_.outputs)}{enters}: {', '.join(slice_.stages)}.", indent=8
        ),
        lines=(
            *checks,
            "flow = Flow(seed)" if seed is None else f"flow = Flow({py.literal(seed)})",
            *body.lines(),
            "return flow",
        ),
    )


def _check(argument: Argument, constant: str) -> str:
    """Holds an argument against its domain; one that may be left out, where it was given."""
    absent = argument.default == "None"
    indent = 12 if absent else 8
    check = layout.call(f"{constant}.require", [py.quoted(argument.field), argument.name], indent=indent)
    return f"if {argument.name} is not None:\n{' ' * indent}{check}" if absent else check


def _keyword(name: str, value: str) -> str:
    return f'**{{"{name}": {value}}}' if keyword.iskeyword(name) else f"{name}={value}"
