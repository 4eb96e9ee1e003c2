"""The reference: a slice of a planned pipeline, walked op by op over whole values.

No streaming, no concurrency, no generated text: what this gives, the generated method must give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omnic.expr import Expr, evaluate
from omnic.ir.edges import stream_mode
from omnic.ir.pipeline import Channel, Endpoint, Open, Pipeline, Slice, Stage, get
from omnic.runtime.segment import Clauses, Sentences, Whole, Words

SEGMENTERS = {"word": Words, "clause": Clauses, "sentence": Sentences, "whole": Whole}
StageFunction = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Mapping[str, str]]
"""(stage, inputs by port, keys) -> text by output port. A streamed input is a tuple of units."""


def interpret(
    pipeline: Pipeline, endpoint: Endpoint, slice_: Slice, arguments: Mapping[str, Any], compute: StageFunction
) -> dict[str, str]:
    """The outputs of `slice_`, by name; those of stages that were skipped are left out."""
    produced: dict[str, str] = {}
    for name in slice_.stages:
        stage = pipeline.stage(name)
        inputs = {
            port: _input(pipeline, endpoint, f"{name}.{port}", source, arguments, produced)
            for port, source in stage.inputs
        }
        if any(value is None and port not in stage.optional for port, value in inputs.items()):
            continue
        outputs = compute(name, inputs, _keys(stage, arguments))
        produced.update({f"{name}.{port}": text for port, text in outputs.items()})
    wanted = [o for o in pipeline.outputs if o.name in slice_.outputs]
    return {o.name: produced[o.source] for o in wanted if o.source in produced}


def _input(
    pipeline: Pipeline,
    endpoint: Endpoint,
    target: str,
    source: str,
    arguments: Mapping[str, Any],
    produced: Mapping[str, str],
) -> Any:
    channel = next((c for c in pipeline.channels if c.name == source), None)
    origin = channel.source if channel else source
    if target == endpoint.entry:
        value = arguments[target.rsplit(".", 1)[1]]
    elif "." in origin:
        value = produced.get(origin)
    else:
        value = arguments.get(origin)
    return _units(channel, value) if channel and value is not None else value


def _units(channel: Channel, text: str) -> tuple[str, ...]:
    stream = get(channel.how, "stream")
    mode, _ = stream_mode(stream.value if stream else "whole")
    if mode == "token":
        return (text,) if text else ()
    segmenter = SEGMENTERS[mode]()
    return (*segmenter.push(text), *segmenter.flush())


def _keys(stage: Stage, arguments: Mapping[str, Any]) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for key, setting in stage.keys:
        match setting.value:
            case Open(field=field):
                keys[key] = arguments[field]
            case Expr() as expr:
                keys[key] = evaluate(expr, arguments)
            case value:
                keys[key] = value
    return keys
