"""What the templates see: one frozen view of the planned pipeline, every decision already made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from omnic.codegen import python as py
from omnic.codegen.slices import SliceView, slice_views
from omnic.codegen.stages import SamplerView, StageView, sampler_views, stage_views
from omnic.contract.domains import Domain
from omnic.expr import names
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
    samplers = sampler_views(pipeline)
    stages = stage_views(pipeline)
    constants = tuple(_constants(pipeline))
    slices = slice_views(pipeline, frozenset(c.name for c in constants))
    text = "\n".join(
        [c.value for c in constants]
        + [line for s in samplers for line in (s.signature, *s.lines)]
        + [s.call for s in stages]
        + [line for s in slices for line in (s.signature, *s.lines)]
    )
    return ModuleView(
        pipeline=pipeline.name,
        class_name=py.class_name(pipeline.name),
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


def _constants(pipeline: Pipeline) -> Iterator[Constant]:
    for param in pipeline.params:
        if param.domain is not None:
            yield Constant(constant(param.name), py.domain(param.domain), py.where(param.span))
    seen: dict[str, Domain] = {}
    for stage in pipeline.stages:
        for key, setting in stage.keys:
            if isinstance(setting.value, Open) and setting.value.domain is not None:
                name = constant(setting.value.field)
                if seen.setdefault(name, setting.value.domain) == setting.value.domain:
                    yield Constant(name, py.domain(setting.value.domain), f"{stage.name}.{key}")
    for index, rule in enumerate(pipeline.requires):
        yield Constant(f"RULE_{index}", f"Rule({py.quoted(str(rule))})", py.where(next(names(rule)).span))


def constant(name: str) -> str:
    return py.identifier(name).upper()


_MODULES = {
    "omnic.contract.domains": ("Choices", "Range", "Rule"),
    "omnic.expr": ("Size",),
    "omnic.runtime.decode": ("Decode",),
    "omnic.runtime.flow": ("Flow",),
    "omnic.runtime.generate": ("Generate", "Rows"),
    "omnic.runtime.pipeline": ("Build", "Pipeline"),
    "omnic.runtime.sampling": ("draw", "keep_top_k", "keep_top_p", "scale"),
    "omnic.runtime.segment": ("Clauses", "Sentences", "Whole", "Words"),
    "omnic.runtime.transform": ("Python", "Resample"),
    "torch": ("Tensor",),
}


def _imports(text: str) -> tuple[str, ...]:
    """The import lines that `text` needs, in the order isort leaves them where omnic is installed."""
    used = set(re.findall(r"\b[A-Za-z_]\w*\b", text)) | {"Flow", "Build", "Pipeline"}
    standard = ["import math"] * ("math." in text) + ["from typing import Any"] * ("Any" in used)
    third = [
        f"from {module} import {', '.join(present)}"
        for module, offered in _MODULES.items()
        if (present := [name for name in offered if name in used])
    ]
    return (*standard, "", *third) if standard else tuple(third)
