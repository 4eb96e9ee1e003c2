"""What must hold of every pipeline, whatever made it: `verify`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from omnic.contract.types import Type, mismatch
from omnic.expr import Literal
from omnic.ir.pipeline import ORIGINS, Endpoint, Pipeline, Settings, Slice, Stage

KINDS = ("generate", "decode", "transform", "python", "denoise")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def verify(pipeline: Pipeline) -> list[str]:
    """The broken invariants of `pipeline`, one line each; none if it is sound.

    Names are unique and of the right form, every reference leads somewhere, types agree along edges, stages stand
    in data-flow order, settings are well made, and every slice is closed.
    """
    return list(_broken(pipeline))


def _broken(p: Pipeline) -> Iterator[str]:
    if not _NAME.fullmatch(p.name):
        yield f"`{p.name}` is no name for a pipeline"
    yield from _names("model", [m.name for m in p.models])
    yield from _names("input or channel", [i.name for i in p.inputs] + [c.name for c in p.channels])
    yield from _names("param", [x.name for x in p.params])
    yield from _names("stage", [s.name for s in p.stages], _PATH)
    yield from _names("output", [o.name for o in p.outputs])
    yield from _names("endpoint", [e.name for e in p.endpoints], _PATH)
    yield from _names("device", [d.name for d in p.devices])
    for param in p.params:
        if param.default is not None and param.domain is not None and param.default not in param.domain:
            yield f"param `{param.name}`: its default is outside its domain"
    produced = {f"{s.name}.{port}": type_ for s in p.stages for port, type_ in s.outputs}
    given = {i.name: i.type for i in p.inputs}
    yield from _stages(p, produced)
    yield from _channels(p, produced | given)
    for output in p.outputs:
        if (type_ := (produced | given).get(output.source)) is None:
            yield f"output `{output.name}` comes from `{output.source}`, which nothing gives"
        elif why := mismatch(type_, output.type):
            yield f"output `{output.name}`: {why}"
    for endpoint in p.endpoints:
        yield from _endpoint(p, endpoint)


def _names(what: str, names: Iterable[str], form: re.Pattern[str] = _NAME) -> Iterator[str]:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            yield f"{what} `{name}` is declared twice"
        elif not form.fullmatch(name):
            yield f"`{name}` is no name for a {what}"
        seen.add(name)


def _stages(p: Pipeline, produced: dict[str, Type]) -> Iterator[str]:
    channels = {c.name: c for c in p.channels}
    given = {i.name for i in p.inputs}
    models = {m.name for m in p.models}
    done: set[str] = set()
    for stage in p.stages:
        at = f"stage `{stage.name}`"
        if stage.kind not in KINDS:
            yield f"{at} is of unknown kind `{stage.kind}`"
        if stage.model is not None and stage.model not in models:
            yield f"{at} is a part of `{stage.model}`, which is no model"
        if not stage.outputs:
            yield f"{at} gives nothing"
        yield from _names(f"input port of {at}", [port for port, _ in stage.inputs])
        yield from _names(f"output port of {at}", [port for port, _ in stage.outputs])
        wired = tuple(port for port, _ in stage.inputs)
        if stage.optional != tuple(port for port in wired if port in stage.optional):
            yield f"{at}: its optional ports are not wired, or stand out of order"
        for port, source in stage.inputs:
            channel = channels.get(source)
            if channel is None and source not in given:
                yield f"{at}: port `{port}` is fed by `{source}`, which is no input and no channel"
            elif channel is not None and channel.target != f"{stage.name}.{port}":
                yield f"{at}: port `{port}` is fed by `{source}`, which leads to `{channel.target}`"
            elif channel is not None and channel.source in produced and _owner(channel.source) not in done:
                yield f"{at} stands before `{_owner(channel.source)}`, which feeds it"
        yield from _settings(at, stage.keys)
        yield from _settings(at, stage.how)
        done.add(stage.name)


def _channels(p: Pipeline, sources: dict[str, Type]) -> Iterator[str]:
    fed = {f"{s.name}.{port}": source for s in p.stages for port, source in s.inputs}
    outputs = {f"output {o.name}" for o in p.outputs}
    for channel in p.channels:
        at = f"channel `{channel.name}`"
        if (type_ := sources.get(channel.source)) is None:
            yield f"{at} comes from `{channel.source}`, which nothing gives"
        elif why := mismatch(type_, channel.type):
            yield f"{at}: {why}"
        if channel.target not in outputs and fed.get(channel.target) != channel.name:
            yield f"{at} leads to `{channel.target}`, which does not take it"
        yield from _settings(at, channel.how)


def _settings(at: str, settings: Settings) -> Iterator[str]:
    yield from _names(f"setting of {at}", [name for name, _ in settings], _PATH)
    for name, setting in settings:
        if setting.origin not in ORIGINS:
            yield f"{at}: `{name}` comes from `{setting.origin}`, which is no origin"
        if isinstance(setting.value, Literal):
            yield f"{at}: `{name}` holds a literal as an expression"
        if isinstance(setting.value, list):
            yield f"{at}: `{name}` holds a list where a tuple belongs"


def _endpoint(p: Pipeline, endpoint: Endpoint) -> Iterator[str]:
    at = f"endpoint `{endpoint.name}`"
    ports = {f"{s.name}.{port}" for s in p.stages for port, _ in s.inputs}
    if endpoint.entry is not None and endpoint.entry not in ports:
        yield f"{at} enters at `{endpoint.entry}`, which is no port"
    for slice_ in endpoint.slices:
        for why in open_ends(p, slice_, endpoint.entry):
            yield f"{at}, {' and '.join(slice_.outputs)}: {why}"


def open_ends(p: Pipeline, slice_: Slice, entry: str | None) -> Iterator[str]:
    """Why a slice is not closed: what it names that is not there, and what it needs and does not hold."""
    stages = {s.name: s for s in p.stages}
    outputs = {o.name: o for o in p.outputs}
    for name in slice_.stages:
        if name not in stages:
            yield f"there is no stage `{name}`"
    order = [s.name for s in p.stages if s.name in slice_.stages]
    if order != [n for n in slice_.stages if n in stages]:
        yield "its stages stand out of data-flow order"
    for name in slice_.outputs:
        if name not in outputs:
            yield f"there is no output `{name}`"
        elif "." in outputs[name].source and _owner(outputs[name].source) not in slice_.stages:
            yield f"`{name}` needs `{_owner(outputs[name].source)}`"
    for name in order:
        for port, source in _needs(p, stages[name], entry):
            if source not in slice_.stages:
                yield f"`{name}.{port}` needs `{source}`"


def _needs(p: Pipeline, stage: Stage, entry: str | None) -> Iterator[tuple[str, str]]:
    """The required ports of a stage that another stage feeds, and that stage."""
    channels = {c.name: c for c in p.channels}
    for port, source in stage.inputs:
        if f"{stage.name}.{port}" == entry or port in stage.optional or source not in channels:
            continue
        if "." in channels[source].source:
            yield port, _owner(channels[source].source)


def _owner(port: str) -> str:
    """The stage of a port: `answer.think.text` -> `answer.think`."""
    return port.rpartition(".")[0]
