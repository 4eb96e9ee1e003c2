"""The manifest of a planned pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omnic import manifest
from omnic.codegen.body import varied
from omnic.codegen.names import Names
from omnic.codegen.slices import SliceView
from omnic.contract.domains import Choices, Range
from omnic.contract.endpoints import Endpoint, Field, Knob, ParamSpec, Signature, Slice, bind
from omnic.contract.types import Type
from omnic.expr import Expr, Quantity, Size
from omnic.ir import pipeline as ir


def manifest_of(
    pipeline: ir.Pipeline,
    models: tuple[manifest.Model, ...],
    slices: tuple[SliceView, ...],
    *,
    source: str,
    source_sha256: str,
    omnic: str,
) -> manifest.Manifest:
    """Everything the runtime needs to load and serve `pipeline`, and nothing of the machine that built it."""
    names = Names(pipeline)
    return manifest.Manifest(
        version=manifest.VERSION,
        omnic=omnic,
        pipeline=pipeline.name,
        class_name=names.class_name,
        source=source,
        source_sha256=source_sha256,
        target=pipeline.target,
        inputs={i.name: i.type for i in pipeline.inputs},
        outputs={o.name: o.type for o in pipeline.outputs},
        params=signature(pipeline).params,
        requires=pipeline.requires,
        models=models,
        stages=tuple(_stage(s) for s in pipeline.stages),
        endpoints=tuple(_endpoint(pipeline, names, e, slices) for e in pipeline.endpoints),
        memory=tuple(manifest.DeviceBytes(d.name, dict(d.items)) for d in pipeline.devices),
    )


def signature(pipeline: ir.Pipeline) -> Signature:
    """What endpoints can bind to."""
    own_defaults = varied(pipeline)
    return Signature(
        inputs={i.name: i.type for i in pipeline.inputs},
        outputs={o.name: o.type for o in pipeline.outputs},
        params={p.name: ParamSpec(p.type, p.domain, p.default) for p in pipeline.params},
        knobs=tuple(
            Knob(stage.name, key, s.value.field, s.value.type, s.value.domain, default, s.value.doc)
            for stage in pipeline.stages
            for key, s in stage.keys
            if isinstance(s.value, ir.Open)
            for default in (None if s.value.field in own_defaults else s.value.default,)
        ),
    )


def _endpoint(pipeline: ir.Pipeline, names: Names, endpoint: ir.Endpoint, views: tuple[SliceView, ...]) -> Endpoint:
    by_method = {view.method: view for view in views}
    entry = names.entries.get(endpoint.name, "")
    called: list[Slice] = []  # as the pipeline calls the arguments,
    slices: list[Slice] = []  # and as Python does
    for s in endpoint.slices:
        view = by_method[names.method(endpoint, s)]
        called.append(
            Slice(view.method, s.outputs, s.stages, tuple(a.field for a in view.arguments if a.name != entry))
        )
        slices.append(Slice(view.method, s.outputs, s.stages, tuple(a.name for a in view.arguments)))
    bound = bind(endpoint.name, signature(pipeline), dict(endpoint.fields), endpoint.entry, tuple(called))

    def named(field: Field) -> Field:
        if not field.argument:
            return field
        return replace(field, argument=entry if field.target == "entry" else names.arguments[field.argument])

    return replace(bound, fields=tuple(map(named, bound.fields)), slices=tuple(slices))


def _stage(stage: ir.Stage) -> manifest.Stage:
    return manifest.Stage(
        name=stage.name,
        kind=stage.kind,
        model=stage.model,
        part=stage.part,
        inputs=dict(stage.inputs),
        outputs=dict(stage.outputs),
        keys={key: _value(s.value) for key, s in stage.keys},
        how={key: _value(s.value) for key, s in stage.how},
        line=stage.span.line if stage.span else 0,
    )


def _value(value: Any) -> Any:
    match value:
        case ir.Open(field=field):
            return {"request": field}
        case Expr():
            return {"param": str(value)}
        case Type() | Range() | Choices() | Size() | Quantity():
            return str(value)
        case tuple() | list():
            return [_value(v) for v in value]
    return value
