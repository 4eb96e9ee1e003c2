"""The frame that passes run in: `Pass`, `Context`, specs such as `place{reserve=0.1}`, and `run`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from omnic import target as targets
from omnic.catalog.keys import COMMON_KEYS
from omnic.catalog.part import Model, Part
from omnic.contract.domains import Domain
from omnic.diagnostics import Sink
from omnic.expr import Call, ExprError, Name, Reader, parse_literal
from omnic.ir.pipeline import ORIGINS, Pipeline, Setting, Settings, Stage, get, put
from omnic.ir.verify import verify
from omnic.passes.envelope import corners
from omnic.source import Span
from omnic.spelling import did_you_mean
from omnic.target import Target, TargetError


class PassBroken(RuntimeError):
    """A pass left a pipeline that breaks an invariant or its own promise: a fault of omnic's."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a pass may know besides the pipeline. Mistakes of the user go to `sink`, with spans of the source."""

    target: Target
    models: Mapping[str, Model]  # by the name the pipeline gives them
    parts: Mapping[str, Part]  # by stage
    sink: Sink
    visible: tuple[str, ...] | None = None  # ids on this machine of the target's devices, where it shows only some
    # what `run` reads off the pipeline
    domains: Mapping[str, Domain | None] = field(default_factory=dict)  # by param, each by itself
    corners: tuple[Mapping[str, Domain | None], ...] = ()  # the same, as far as rules let them go at once
    feeders: Mapping[str, tuple[Stage, ...]] = field(default_factory=dict)  # by stage: all that feed it, the next first
    chunked: frozenset[str] = frozenset()  # stages that take an input in chunks

    def of(self, pipeline: Pipeline) -> Context:
        """This context for a pipeline."""
        return replace(
            self,
            domains={p.name: p.domain for p in pipeline.params},
            corners=corners(pipeline),
            feeders={stage.name: tuple(pipeline.feeders(stage)) for stage in pipeline.stages},
            chunked=frozenset(
                channel.target.rpartition(".")[0]
                for channel in pipeline.channels
                if (stream := get(channel.how, "stream")) and isinstance(stream.value, Call)
            ),
        )

    @classmethod
    def make(cls, lowered: Lowered, *, target: str | None, sink: Sink) -> Context | None:
        """The context for a lowered pipeline: `target` (of a flag), else the deploy block's, else this machine's
        processor. None, with the reason in `sink`, if there is no such target."""
        try:
            base = lowered.sources[0].parent if lowered.sources else Path()
            made = targets.load(target) if target is not None else target_of(lowered.pipeline.target, base)
            return cls(made, lowered.models, lowered.parts, sink, targets.visible(made))
        except TargetError as error:
            span = None if target is not None else getattr(lowered.deploy, "span", None)
            sink.error("bad-target", error.message, span, help=[error.help] if error.help else [])
            return None

    def part(self, stage: Stage) -> Part:
        return self.parts[stage.name]


class Lowered(Protocol):
    """What lowering hands over, as far as passes need it."""

    @property
    def pipeline(self) -> Pipeline: ...
    @property
    def models(self) -> Mapping[str, Model]: ...
    @property
    def parts(self) -> Mapping[str, Part]: ...
    @property
    def deploy(self) -> Any: ...
    @property
    def sources(self) -> tuple[Path, ...]: ...


@dataclass(frozen=True, slots=True)
class Pass:
    """One decision. Fields are its options, settable in a spec; the docstring says what it decides and promises."""

    name: ClassVar[str]

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        """`pipeline` with more decided. Where the source is at fault: an error in the sink, and any pipeline."""
        raise NotImplementedError

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        """What of the promise does not hold in `pipeline`."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Step:
    """A pipeline as a pass left it."""

    after: str
    pipeline: Pipeline


def history(passes: Iterable[Pass], pipeline: Pipeline, context: Context) -> Iterator[Step]:
    """The pipeline after each pass, up to the first that finds an error. Raises PassBroken for a fault of ours."""
    pipeline = replace(pipeline, target=context.target.name)
    for pass_ in passes:
        pipeline = pass_.run(pipeline, context.of(pipeline))
        if context.sink.has_errors:
            return
        context = context.of(pipeline)
        if broken := [*verify(pipeline), *pass_.broken(pipeline, context)]:
            raise PassBroken(f"after pass `{pass_.name}`: {'; '.join(broken)}")
        yield Step(pass_.name, pipeline)


def run(passes: Iterable[Pass], pipeline: Pipeline, context: Context, print_after: str | None = None) -> Pipeline:
    """`pipeline` after `passes`, in order. `print_after` names passes (or `all`) whose result is printed.

    With errors in the context's sink, the result is how far it came.
    """
    shown = {name.strip() for name in (print_after or "").split(",") if name.strip()}
    for step in history(passes, pipeline, context):
        pipeline = step.pipeline
        if shown & {step.after, "all"}:
            from omnic.ir.text import dump

            print(f"// after {step.after}\n{dump(pipeline)}")
    return pipeline


# --- settings ---------------------------------------------------------------------------------------------------------


def decide(settings: Settings, name: str, value: Any, reason: str, origin: str = "planner") -> Settings:
    """`settings` with `name` decided, unless something as strong or stronger has: what is pinned stays pinned."""
    found = get(settings, name)
    if found is not None and ORIGINS.index(found.origin) <= ORIGINS.index(origin):
        return settings
    return put(settings, name, Setting(value, origin, reason))


def without(settings: Settings, *names: str) -> Settings:
    return tuple((n, s) for n, s in settings if n not in names)


def word(value: Any) -> Any:
    """A word of the source as a string, whether it was kept as a name or as a string; other values as they are."""
    return value.path[0] if isinstance(value, Name) and len(value.path) == 1 else value


def span_of(setting: Setting | None, stage: Stage) -> Span | None:
    """Where to point for a setting of a stage: where it was written, else the stage."""
    return setting.span if setting is not None and setting.span is not None else stage.span


_COMMON = {key.name: key for key in COMMON_KEYS}


def settle(stage: Stage, sink: Sink, *names: str) -> Stage:
    """`stage` without the keys `names`, whose only values so far say what holds anyway. Others are refused."""
    for name in names:
        setting = get(stage.how, name)
        refusal = setting and _COMMON[name].refusal(word(setting.value))
        if setting is not None and refusal:
            sink.error(
                "not-supported-yet", f"`{name}` of `{stage.name}` cannot be set yet: {refusal}", span_of(setting, stage)
            )
    return replace(stage, how=without(stage.how, *names))


# --- specs ------------------------------------------------------------------------------------------------------------


def parse_specs(text: str, known: Mapping[str, type[Pass]], later: Mapping[str, str]) -> tuple[Pass, ...]:
    """`slice,place{reserve=0.1}` as passes. Raises ValueError that says which name or option is wrong."""
    try:
        reader = Reader(text)
        found: list[Pass] = []
        while reader.token.kind != "end":
            name = reader.next().text
            if name in later:
                raise ValueError(f"pass `{name}` comes later: {later[name]}")
            if name not in known:
                hint = did_you_mean(name, known) or f"passes are {', '.join(known)}"
                raise ValueError(f"there is no pass `{name}`; {hint}")
            found.append(known[name](**(_options(reader, known[name]) if reader.take("{") else {})))
            if not reader.take(","):
                reader.end()
    except ExprError as error:
        raise ValueError(str(error)) from None
    return tuple(found)


def require_share(name: str, reserve: float) -> None:
    """Raises ValueError unless the option `reserve` of pass `name` is a part of a device."""
    if not 0 <= reserve < 1:
        raise ValueError(f"option `reserve` of pass `{name}` is a share from 0 and below 1, not {reserve}")


def _options(reader: Reader, of: type[Pass]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    types = {f.name: type(f.default) for f in fields(of)}
    while not reader.take("}"):
        name = reader.next().text
        if name not in types:
            has = f"it has {', '.join(types)}" if types else "it has none"
            raise ValueError(f"pass `{of.name}` has no option `{name}`; {has}")
        reader.expect("=")
        token = reader.next()
        value = parse_literal(token) if token.kind in ("number", "string", "quantity", "size") else token.text
        if types[name] is float and isinstance(value, int):
            value = float(value)
        if type(value) is not types[name]:
            raise ValueError(f"option `{name}` of pass `{of.name}` is a {types[name].__name__}, not `{token.text}`")
        if name in options:
            raise ValueError(f"option `{name}` of pass `{of.name}` is set twice")
        options[name] = value
        if not reader.take(","):
            reader.expect("}")
            break
    return options


# --- targets as written -----------------------------------------------------------------------------------------------


def target_of(text: str, base: Path) -> Target:
    """The target that a deploy block writes: `cpu`, `gpu("h200", count = 2)`, `hosts(2, …)`, or the name of a file,
    from the directory `base`. Raises TargetError."""
    try:
        reader = Reader(text)
        made = _target(reader, base)
        reader.end()
    except ExprError:
        return targets.load(text)
    return made if isinstance(made, Target) else targets.load(str(made))


def _target(reader: Reader, base: Path) -> Any:
    token = reader.next()
    if token.kind == "string":
        return targets.read(base / str(parse_literal(token)))
    if token.kind != "name":
        raise reader.error("expected a target")
    if not reader.take("("):
        return targets.cpu() if token.text == "cpu" else token.text
    args: list[Any] = []
    options: dict[str, Any] = {}
    while not reader.take(")"):
        if reader.token.kind == "name" and reader.tokens[reader.at + 1].text == "=":
            name = reader.next().text
            reader.expect("=")
            options[name] = _argument(reader, base)
        else:
            args.append(_argument(reader, base))
        if not reader.take(","):
            reader.expect(")")
            break
    return targets.made(token.text, tuple(args), options)


def _argument(reader: Reader, base: Path) -> Any:
    if reader.token.kind == "name":
        return _target(reader, base)
    return parse_literal(reader.next())
