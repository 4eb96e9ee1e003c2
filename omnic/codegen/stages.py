"""Views of the stages: how each is constructed, and the sampling function of those that generate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnic.codegen import python as py
from omnic.expr import Expr
from omnic.ir.pipeline import Open, Pipeline, Stage, get

SAMPLER_KEYS = ("temperature", "top_k", "top_p")
_NEUTRAL = {"top_k": 0, "top_p": 1.0}


@dataclass(frozen=True, slots=True)
class SamplerView:
    """A function that picks tokens, with only the steps that open or pinned knobs need."""

    signature: str
    doc: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StageView:
    """`self.NAME = self.add(…)` and the source line it comes from."""

    name: str
    comment: str
    call: str


def attribute(stage: str) -> str:
    return py.identifier(stage)


def settled(value: Any) -> bool:
    """Whether a key's value is known now: neither open to requests nor computed from params."""
    return not isinstance(value, Open | Expr)


def sampler_views(pipeline: Pipeline) -> tuple[SamplerView, ...]:
    return tuple(_sampler(stage) for stage in pipeline.stages if stage.kind == "generate")


def _sampler(stage: Stage) -> SamplerView:
    values = {key: setting.value for key in SAMPLER_KEYS if (setting := get(stage.keys, key)) is not None}
    temperature = values.get("temperature", 0.0)
    signature = f"def sample_{attribute(stage.name)}(logits: Tensor, rows: Rows) -> Tensor:"
    if settled(temperature) and temperature == 0:
        return SamplerView(signature, "Greedy: `temperature` is pinned to 0.", ("return logits.argmax(-1)",))

    def operand(key: str) -> str:
        return py.literal(values[key]) if settled(values[key]) else f"rows.{key}"

    steps = [f"logits = scale(logits, {operand('temperature')})"]
    for key in ("top_k", "top_p"):
        if key in values and not (settled(values[key]) and values[key] == _NEUTRAL[key]):
            steps.append(f"logits = keep_{key}(logits, {operand(key)})")
    greedy = "" if settled(temperature) else ", rows.temperature"
    steps.append(f"return draw(logits, rows.uniform{greedy})")
    return SamplerView(signature, _knobs(values), tuple(steps))


def _knobs(values: dict[str, Any]) -> str:
    open_ = [key for key, value in values.items() if not settled(value)]
    pinned = [f"{key} = {value}" for key, value in values.items() if settled(value)]
    parts = [f"each row brings its own {' and '.join(open_)}"] if open_ else []
    parts += [f"pinned: {', '.join(pinned)}"] if pinned else []
    return f"{'; '.join(parts).capitalize()}."


def stage_views(pipeline: Pipeline) -> tuple[StageView, ...]:
    return tuple(StageView(attribute(s.name), _comment(s), _construct(s)) for s in pipeline.stages)


def _comment(stage: Stage) -> str:
    made_of = f"{stage.model}.{stage.part}" if stage.model else stage.part
    return f"{py.where(stage.span)}  stage {stage.name} = {made_of}".strip()


def _construct(stage: Stage) -> str:
    name = py.quoted(stage.name)
    how = [f"{key}={py.literal(s.value)}" for key, s in stage.how if key != "on"]
    match stage.kind:
        case "generate":
            function, args = "Generate", [name, _checkpoint(stage), *how, f"sample=sample_{attribute(stage.name)}"]
        case "decode" if stage.model:
            function, args = "Decode", [name, _checkpoint(stage), f"part={py.quoted(stage.part)}", *how]
        case "python":
            file, _, called = stage.part.partition(":")
            path = f'build.path / "python" / {py.quoted(file.rsplit("/", 1)[-1])}'
            ports = [f"inputs={py.literal(tuple(port for port, _ in stage.inputs))}",
                     f"outputs={py.literal(tuple(port for port, _ in stage.outputs))}"]  # fmt: skip
            function, args = "Python", [name, f"file={path}", f"function={py.quoted(called)}", *ports, *how]
        case _:
            keys = [f"{key}={py.literal(s.value)}" for key, s in stage.keys if settled(s.value)]
            function, args = py.class_name(stage.part), [name, *keys, *how]
    target = f"self.{attribute(stage.name)} = self.add("
    made = py.call(function, args, indent=8)
    if "\n" not in made and 8 + len(target) + len(made) + 1 <= py.WIDTH:
        return f"{target}{made})"
    return f"{target}\n            {py.call(function, args, indent=12)}\n        )"


def _checkpoint(stage: Stage) -> str:
    return f"build.checkpoint({py.quoted(stage.model or '')})"
