"""Views of the stages: how each is constructed, and the sampling function of those that generate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnic.codegen import layout
from omnic.codegen import python as py
from omnic.codegen.names import Names
from omnic.expr import Expr
from omnic.ir.pipeline import Open, Pipeline, Stage, get

SAMPLER_KEYS = ("temperature", "top_k", "top_p")
"""Keys of a generate stage that its sampling function holds where they are pinned."""
_INDENT = 16  # of the arguments of a stage that take a line each
_NEUTRAL = {"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}


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
    comment: tuple[str, ...]
    call: str


def settled(value: Any) -> bool:
    """Whether a key's value is known now: neither open to requests nor computed from params."""
    return not isinstance(value, Open | Expr)


def sampler_views(pipeline: Pipeline, names: Names) -> tuple[SamplerView, ...]:
    return tuple(_sampler(stage, names) for stage in pipeline.stages if stage.kind == "generate")


def _sampler(stage: Stage, names: Names) -> SamplerView:
    values = {
        key: setting.value
        for key in ("repetition_penalty", *SAMPLER_KEYS)
        if (setting := get(stage.keys, key)) and setting.value != _NEUTRAL.get(key)
    }
    temperature = values.get("temperature", 0.0)
    signature = f"def {names.samplers[stage.name]}(logits: Tensor, rows: Rows) -> Tensor:"
    steps = []
    if "repetition_penalty" in values:
        steps.append("logits = penalise(logits, rows.seen, rows.repetition_penalty)")
    if temperature == 0:
        return SamplerView(signature, "Greedy: `temperature` is pinned to 0.", (*steps, "return logits.argmax(-1)"))

    def operand(key: str) -> str:
        return py.literal(values[key]) if settled(values[key]) else f"rows.{key}"

    steps.append(f"logits = scale(logits, {operand('temperature')})")
    steps += [f"logits = keep_{key}(logits, {operand(key)})" for key in ("top_k", "top_p") if key in values]
    steps.append(f"return draw(logits, rows.uniform{'' if settled(temperature) else ', rows.temperature'})")
    return SamplerView(signature, _knobs(values), tuple(steps))


def _knobs(values: dict[str, Any]) -> str:
    open_ = [key for key, value in values.items() if not settled(value)]
    pinned = [f"{key} = {value}" for key, value in values.items() if settled(value)]
    parts = [f"each row brings its own {', '.join(open_)}"] if open_ else []
    parts += [f"pinned: {', '.join(pinned)}"] if pinned else []
    return f"{'; '.join(parts).capitalize()}."


def stage_views(pipeline: Pipeline, names: Names) -> tuple[StageView, ...]:
    """How each stage is constructed, in data-flow order."""
    return tuple(StageView(names.stages[s.name], _comment(s), _construct(s, names)) for s in pipeline.stages)


def _comment(stage: Stage) -> tuple[str, ...]:
    made_of = f"{stage.model}.{stage.part}" if stage.model else stage.part
    return layout.prose(f"{py.where(stage.span)}  stage {stage.name} = {py.shown(made_of)}".strip(), indent=10)


def _construct(stage: Stage, names: Names) -> str:
    name = py.quoted(stage.name)
    on_thread = stage.kind != "decode"  # of the device, whose share of the processor it is
    how = [_how(stage, k, s.value) for k, s in stage.how if k != "on" and not (on_thread and k == "threads")]
    match stage.kind:
        case "generate":
            function, args = (
                "Generate",
                [name, _checkpoint(stage), _device(stage), *how, f"sample={names.samplers[stage.name]}"],
            )
        case "decode" if stage.model:
            function, args = "Decode", [name, _checkpoint(stage), f"part={py.quoted(stage.part)}", *how]
        case "transform" | "denoise" if stage.model:
            ports = [f"inputs={py.literal(tuple(port for port, _ in stage.inputs))}",
                     f"outputs={py.literal(tuple(port for port, _ in stage.outputs))}"]  # fmt: skip
            function = "Denoise" if stage.kind == "denoise" else "Forward"
            args = [name, _checkpoint(stage), _device(stage), f"part={py.quoted(stage.part)}", *ports, *how]
        case "python":
            file, _, called = stage.part.rpartition(":")
            path = f'build.path / "python" / {py.quoted(names.files[file])}'
            outputs = ", ".join(f"{py.quoted(port)}: {py.quoted(type_.kind)}" for port, type_ in stage.outputs)
            ports = [f"inputs={py.literal(tuple(port for port, _ in stage.inputs))}", f"outputs={{{outputs}}}"]
            function, args = "Python", [name, f"file={path}", f"function={py.quoted(called)}", *ports, *how]
        case _:
            keys = [f"{key}={py.literal(s.value)}" for key, s in stage.keys if settled(s.value)]
            function, args = stage.part.capitalize(), [name, *keys, *how]
    target = f"self.{names.stages[stage.name]} = self.add("
    made = layout.call(function, args, indent=8)
    if "\n" not in made and 8 + len(target) + len(made) + 1 <= layout.WIDTH:
        return f"{target}{made})"
    return f"{target}\n            {layout.call(function, args, indent=12)}\n        )"


def _how(stage: Stage, key: str, value: Any) -> str:
    """A decision as an argument: adapters are checkpoints, by the names that requests know; engines made ahead are
    found in the build."""
    if key == "engine" and value == "tensorrt":
        return f"engines=build.engines({py.quoted(stage.name)})"
    return f"{key}={_value(key, value)}"


def _value(key: str, value: Any) -> str:
    if key not in ("loras", "fuse"):
        return py.literal(value)
    named = (item.partition("=") for item in value)
    items = [f"{py.quoted(name)}: build.checkpoint({py.quoted(model or name)})" for name, _, model in named]
    line = "{" + ", ".join(items) + "}"
    if _INDENT + len(f"{key}={line},") <= layout.WIDTH:
        return line
    return "{\n" + "".join(f"{' ' * (_INDENT + 4)}{item},\n" for item in items) + " " * _INDENT + "}"


def _device(stage: Stage) -> str:
    on = get(stage.how, "on")
    assert on is not None, "`place` puts every stage on a device"
    threads = get(stage.how, "threads")
    share = f", threads={threads.value}" if threads is not None and threads.value else ""
    return f"build.device({py.quoted(on.value[0])}{share})"


def _checkpoint(stage: Stage) -> str:
    return f"build.checkpoint({py.quoted(stage.model or '')})"
