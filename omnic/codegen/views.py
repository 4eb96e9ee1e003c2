"""What the templates see: one frozen view of the planned pipeline, every decision already made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from omnic.codegen import python as py
from omnic.codegen.names import MODULES, Names
from omnic.codegen.slices import SliceView, slice_views
from omnic.codegen.stages import SamplerView, StageView, sampler_views, stage_views
from omnic.expr import names as names_in
from omnic.ir.pipeline import Open, Pipeline


@dataclass(frozen=True, slots=True)
class Constant:
    """A domain or rule that the generated methods check arguments against."""

    name: str
    value: str
    comment: str


@dataclass(frozen=True, slots=True)
class ModuleView:
    """All of `pipeline.py`."""

    pipeline: str
    class_name: str
    source: str
    source_sha256: str
    omnic: str
    stage_names: tuple[str, ...]
    imports: tuple[str, ...]
    constants: tuple[Constant, ...]
    samplers: tuple[SamplerView, ...]
    stages: tuple[StageView, ...]
    slices: tuple[SliceView, ...]


def module_view(pipeline: Pipeline, source: str, source_sha256: str, omnic: str) -> ModuleView:
    names = Names(pipeline)
    samplers = sampler_views(pipeline, names)
    stages = stage_views(pipeline, names)
    constants = tuple(_constants(pipeline, names))
    slices = slice_views(pipeline, names, frozenset(c.name for c in constants))
    text = "\n".join(
        [c.value for c in constants]
        + [line for s in samplers for line in (s.signature, *s.lines)]
        + [s.call for s in stages]
        + [line for s in slices for line in (s.signature, *s.lines)]
    )
    return ModuleView(
        pipeline=pipeline.name,
        class_name=names.class_name,
        source=source,
        source_sha256=source_sha256,
        omnic=omnic,
        stage_names=tuple(s.name for s in pipeline.stages),
        imports=_imports(text),
        constants=constants,
        samplers=samplers,
        stages=stages,
        slices=slices,
    )


def _constants(pipeline: Pipeline, names: Names) -> Iterator[Constant]:
    for param in pipeline.params:
        if param.domain is not None:
            yield Constant(names.constants[param.name], py.domain(param.domain), py.where(param.span))
    given = {param.name for param in pipeline.params}
    for stage in pipeline.stages:
        for key, setting in stage.keys:
            knob = setting.value
            if isinstance(knob, Open) and knob.domain is not None and knob.field not in given:
                given.add(knob.field)
                yield Constant(names.constants[knob.field], py.domain(knob.domain), f"{stage.name}.{key}")
    for name, rule in zip(names.rules, pipeline.requires, strict=True):
        yield Constant(name, f"Rule({py.quoted(str(rule))})", py.where(next(names_in(rule)).span))


def _imports(text: str) -> tuple[str, ...]:
    """The import lines that `text` needs, in the order isort leaves them where omnic is installed."""
    used = set(re.findall(r"\b[A-Za-z_]\w*\b", text)) | {"Flow", "Build", "Pipeline"}
    standard = ["import math"] * ("math." in text) + ["from typing import Any"] * ("Any" in used)
    third = [
        f"from {module} import {', '.join(present)}"
        for module, offered in MODULES.items()
        if (present := [name for name in offered if name in used])
    ]
    return (*standard, "", *third) if standard else tuple(third)
