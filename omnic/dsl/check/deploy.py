"""Deploy blocks: a pipeline of the file, a target, limits, and keys of stages that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omnic import expr
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check import adapters, keys
from omnic.dsl.check.bound import Deploy, Pipeline, Rule, Stage, Value
from omnic.dsl.check.expressions import MISSING, Scope, constant, span_of
from omnic.dsl.check.names import well_formed
from omnic.expr import Binary, Expr, Literal, Name, Quantity, format_value
from omnic.source import Span
from omnic.spelling import did_you_mean

KEYS = ("target", "optimize")
GOALS = ("latency", "throughput", "memory")
PERCENTILES = ("p50", "p90", "p95", "p99", "mean")
TIMES = ("ttft", "ttfa", "latency", "step")
MEMORIES = ("cpu", "gpu", "host")


def deploys(file: ast.File, pipelines: Mapping[str, Pipeline], sink: Sink) -> dict[str, Deploy]:
    """The deploy blocks of a file. `pipelines` are those of its pipelines that could be made sense of."""
    known = [item.name.text for item in file.items if isinstance(item, ast.Pipeline)]
    found: dict[str, Deploy] = {}
    for declared in (item for item in file.items if isinstance(item, ast.Deploy)):
        if declared.name.text in found:
            first = Label(found[declared.name.text].span, "declared here")
            message = f"`{declared.name}` is declared twice"
            sink.error("duplicate-name", message, declared.name.span, "a deploy block", secondary=[first])
            continue
        well_formed(declared.name, sink)
        name = _pipeline(declared, known, sink)
        pipeline = pipelines.get(name) if name is not None else None
        found[declared.name.text] = _deploy(declared, name or "", pipeline, sink)
    return found


def _pipeline(declared: ast.Deploy, known: list[str], sink: Sink) -> str | None:
    if declared.pipeline is not None:
        if declared.pipeline.text in known:
            return declared.pipeline.text
        hint = did_you_mean(declared.pipeline.text, known)
        sink.error("unknown-pipeline", f"there is no pipeline `{declared.pipeline}`", declared.pipeline.span, hint)
        return None
    if len(known) == 1:
        return known[0]
    if known:
        help_ = [f"write `deploy {declared.name} for {known[0]}`"]
        what = f"the file has {len(known)} pipelines; say which one `{declared.name}` is for"
        sink.error("unknown-pipeline", what, declared.name.span, help=help_)
    else:
        sink.error("unknown-pipeline", "there is no pipeline to deploy", declared.name.span)
    return None


def _deploy(declared: ast.Deploy, name: str, pipeline: Pipeline | None, sink: Sink) -> Deploy:
    target: str | None = None
    seen: dict[str, Span] = {}
    limits: list[Rule] = []
    values: dict[str, tuple[Value, ...]] = {}
    for item in declared.items:
        match item:
            case ast.Setting():
                key = str(item.path)
                if key in seen:
                    first = Label(seen[key], "set here")
                    sink.error("duplicate-key", f"`{key}` is set twice", item.path.span, secondary=[first])
                    continue
                seen[key] = item.path.span
                if key == "target":
                    target = _target(item.value, sink)
                elif key == "optimize":
                    _goal(item.value, sink)
                else:
                    hint = did_you_mean(key, KEYS) or f"it has {listing(KEYS)}, `limit …` and `stage NAME {{ … }}`"
                    sink.error("unknown-key", f"a deploy block has no key `{key}`", item.path.span, hint)
            case ast.Limit(rule=rule):
                limits += _limit(rule, sink)
            case ast.Override():
                stage = str(item.stage)
                if stage in seen:
                    first = Label(seen[stage], "first here")
                    sink.error("duplicate-name", f"`{stage}` stands twice", item.stage.span, secondary=[first])
                elif pipeline is not None:
                    values[stage] = overrides(item, pipeline, sink)
                seen[stage] = item.stage.span
    return Deploy(declared.name.text, name, target, tuple(limits), values, declared.name.span)


# --- stages -----------------------------------------------------------------------------------------------------------


def overrides(item: ast.Override, pipeline: Pipeline, sink: Sink) -> tuple[Value, ...]:
    """The keys that a deploy block (or a flag) sets of a stage."""
    names = [name.text for name in item.stage.names]
    stage = find(names, pipeline)
    if stage is None:
        known = list(stage_names(pipeline))
        hint = did_you_mean(str(item.stage), known) or f"there are {listing(known)}"
        sink.error("unknown-stage", f"pipeline `{pipeline.name}` has no stage `{item.stage}`", item.stage.span, hint)
        return ()
    if stage.part is None:
        return ()
    given = keys.values(item.block, stage, Scope({}, {}), sink)
    return tuple(value for value in given if _free(value, stage, item, sink))


def _free(value: Value, stage: Stage, item: ast.Override, sink: Sink) -> bool:
    """Whether a key can be set apart from the stage: it follows no param, and no type hangs on it."""
    name = f"`{item.stage}.{value.key.name}`"
    own = next((v for v in stage.values if v.key.name == value.key.name), None)
    if own is not None and isinstance(own.value, Expr) and next(expr.names(own.value), None) is not None:
        message = f"{name} follows `{own.value}`, so it cannot be set here"
        sink.error("bound-to-param", message, value.span, secondary=[Label(own.span, "bound here")])
        return False
    if value.key.name in adapters.KEYS:
        message = f"{name} decides what is computed, so it cannot be set here"
        sink.error("decides-weights", message, value.span, help=[f"set it in the block of stage `{stage.name}`"])
        return False
    ports = (*stage.part.inputs, *stage.part.outputs) if stage.part else ()
    if any(port.type_key == value.key.name for port in ports):
        message = f"{name} decides what flows on from `{item.stage}`, so it cannot be set here"
        secondary = [Label(own.span, "set here")] if own else []
        sink.error("decides-type", message, value.span, secondary=secondary)
        return False
    return True


def find(names: list[str], pipeline: Pipeline) -> Stage | None:
    """A stage by its path: `["answer", "think"]` is `think` of the pipeline that stage `answer` is."""
    stage = pipeline.stages.get(names[0])
    for name in names[1:]:
        stage = stage.inner.stages.get(name) if stage is not None and stage.inner is not None else None
    return stage


def stage_names(pipeline: Pipeline, prefix: str = "") -> Iterator[str]:
    for stage in pipeline.stages.values():
        yield prefix + stage.name
        if stage.inner is not None:
            yield from stage_names(stage.inner, f"{prefix}{stage.name}.")


# --- targets and goals ------------------------------------------------------------------------------------------------


def _target(value: Expr, sink: Sink) -> str | None:
    """A target as text that stands for it; None, and an error, if there is no such target."""
    from omnic.target import Target, TargetError

    try:
        made, text = _made(value, sink)
    except TargetError as error:
        at = _option(value, error.option) or span_of(value)
        sink.error("bad-target", error.message, at, help=[error.help] if error.help else [])
        return None
    if text and not isinstance(made, Target):
        shape = 'a target is `cpu`, `gpu("h200", count = 2)`, `hosts(2, gpu(…))` or a file from `omnic calibrate`'
        sink.error("bad-target", "this is no target", span_of(value), help=[shape])
        return None
    if isinstance(made, Target) and made.hosts > 1:
        sink.error("not-supported-yet", "omnic cannot spread a pipeline over hosts yet", span_of(value))
        return None
    return text or None


def _option(value: Expr, name: str | None) -> Span | None:
    """Where the option `name` of a call, or of one inside it, is set."""
    if not isinstance(value, ast.Call):
        return None
    own = next((option.span.to(span_of(given)) for option, given in value.named if option.text == name), None)
    inside = (_option(given, name) for given in (*value.args, *(given for _, given in value.named)))
    return own or next(filter(None, inside), None)


def _made(value: Expr, sink: Sink) -> tuple[Any, str]:
    """What a target or an argument of one is, and its text; no text after an error that has been said."""
    from omnic import target

    match value:
        case Name(path=("cpu",)):
            return target.cpu(), "cpu"
        case Name(path=(word,)):
            return word, word
        case Literal(value=str(file)) if file.endswith(".json"):
            return target.read(Path(span_of(value).source.path).parent / file), format_value(file)
        case Literal(value=literal):
            return literal, format_value(literal)
        case ast.Call(path=path, args=args, named=named):
            made = [_made(arg, sink) for arg in args]
            options = {name.text: _made(given, sink) for name, given in named}
            if not all(text for _, text in (*made, *options.values())):
                return None, ""
            arguments = ", ".join([*(text for _, text in made), *(f"{n} = {text}" for n, (_, text) in options.items())])
            values = {name: content for name, (content, _) in options.items()}
            return target.made(str(path), tuple(content for content, _ in made), values), f"{path}({arguments})"
    if isinstance(value, ast.List | ast.Signature):
        return value, span_of(value).text
    found = constant(value, sink, "a target")
    return (None, "") if found is MISSING else (found, format_value(found))


def _goal(value: Expr, sink: Sink) -> None:
    word = value.path[0] if isinstance(value, Name) and len(value.path) == 1 else None
    if word not in GOALS:
        hint = did_you_mean(word or "", GOALS)
        sink.error("wrong-value", f"`optimize` is {listing(GOALS, last='or')}", span_of(value), hint)
    else:
        sink.error("not-supported-yet", "omnic does not search for the best plan yet", span_of(value))


def _limit(rule: Expr, sink: Sink) -> Iterator[Rule]:
    """`limit memory(gpu) <= 24GiB`; `limit p95(ttft) <= 500ms` is well formed too, and comes later."""
    match rule:
        case Binary(
            op="<=" | "<", left=ast.Call(path=path, args=(Name(path=(what,)) as subject,), named=()), right=bound
        ):
            measure = str(path)
        case _:
            message, example = "a limit is a measure, `<=` and a bound", "such as `memory(gpu) <= 24GiB`"
            sink.error("bad-limit", message, span_of(rule), example)
            return
    measures = ("memory", *PERCENTILES)
    if measure not in measures:
        hint = did_you_mean(measure, measures) or f"there are {listing(measures)}"
        sink.error("bad-limit", f"unknown measure `{measure}`", path.span, hint)
        return
    subjects, dimension = (MEMORIES, "B") if measure == "memory" else (TIMES, "s")
    if what not in subjects:
        hint = did_you_mean(what, subjects) or f"there are {listing(subjects)}"
        sink.error("bad-limit", f"`{measure}` measures no `{what}`", span_of(subject), hint)
        return
    limit = bound.value if isinstance(bound, Literal) else None
    if not isinstance(limit, Quantity) or limit.dimension != dimension:
        unit = "24GiB" if dimension == "B" else "500ms"
        sink.error("bad-limit", f"a bound on `{measure}({what})` is a quantity", span_of(bound), f"such as `{unit}`")
        return
    if measure != "memory":
        sink.error(
            "not-supported-yet", "omnic predicts memory, not times yet: it cannot hold this limit", span_of(rule)
        )
        return
    yield Rule(Binary(rule.op, expr.Call(measure, (subject,), span=path.span), bound, span=rule.span), span_of(rule))
