"""What `build` makes besides text: the engines of stages that run by TensorRT."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnic.contract.domains import Choices, Domain, Range
from omnic.expr import ExprError, Size, evaluate
from omnic.ir.pipeline import Open, Pipeline, Setting, get
from omnic.passes.ahead import TENSORRT

if TYPE_CHECKING:
    from omnic.driver import Planned
    from omnic.manifest import Manifest
    from omnic.passes import Context
    from omnic.runtime.engines.builder import Builder
    from omnic.runtime.engines.make import Made
    from omnic.runtime.lock import EngineRecord

_SHAPING = ("size", "int", "float")  # kinds of param that shapes may hang on


class EnginesFailed(RuntimeError):
    """An engine that the plan asks for cannot be made here. One line that names the stage and says why."""


@dataclass(frozen=True, slots=True)
class Engines:
    """Those of one stage."""

    stage: str
    made: tuple[Made, ...]


def wanted(pipeline: Pipeline) -> tuple[str, ...]:
    """The stages whose engines are made ahead."""
    engines = ((stage.name, get(stage.how, "engine")) for stage in pipeline.stages)
    return tuple(name for name, engine in engines if engine is not None and engine.value == TENSORRT)


def make(
    planned: Planned, files: Mapping[str, bytes], told: Callable[[str], None],
    builder: Callable[[str], Builder] | None = None,
) -> tuple[Engines, ...]:  # fmt: skip
    """The engines of all stages of a plan that want some, in the cache. `files` are those of the build, `told` is
    called with a line for each engine, `builder` gives what builds for an architecture. Loads the weights of these
    stages and of those before them. Raises EnginesFailed."""
    from omnic import manifest

    stages = wanted(planned.pipeline)
    if not stages:
        return ()
    content, base = manifest.load(files["manifest.json"]), planned.front.path.parent
    try:
        return tuple(_made(planned, content, base, told, builder))
    except ImportError as error:
        raise EnginesFailed(f"`{stages[0]}`: making its engine needs omnic[serve,tensorrt]: {error}") from None


def records(engines: Sequence[Engines]) -> list[EngineRecord]:
    """What `engines.lock` says of them."""
    return [
        {
            "stage": one.stage,
            "body": made.body,
            "signature": made.signature,
            "entry": made.obtained.artefact.path.name,
        }
        for one in engines
        for made in one.made
    ]


def put(engines: Sequence[Engines], out: Path) -> None:
    """The engines in the folder `engines` of a build, and no others of earlier builds."""
    import shutil

    folder = out / "engines"
    if engines:
        from omnic.runtime.engines.make import taken

        for artefact in (made.obtained.artefact for one in engines for made in one.made):
            taken(artefact, folder)
    kept = {record["entry"] for record in records(engines)}
    for entry in folder.glob("*/entry.json") if folder.is_dir() else ():
        if entry.parent.name not in kept:
            shutil.rmtree(entry.parent)


def _made(
    planned: Planned, content: Manifest, base: Path, told: Callable[[str], None],
    builder: Callable[[str], Builder] | None,
) -> Iterator[Engines]:  # fmt: skip
    from omnic.runtime.engines.builder import NoBuilder, Settings, builder_for
    from omnic.runtime.engines.calls import Unfit
    from omnic.runtime.engines.gate import Unfaithful
    from omnic.runtime.engines.make import engines
    from omnic.runtime.engines.samples import Samples
    from omnic.runtime.weights import Damaged, Missing

    pipeline, context = planned.pipeline, planned.context
    held: dict[str, Any] = {}

    def load(name: str) -> Any:
        if name not in held:
            held[name] = _part(content, name, base)
        return held[name]

    sources = {channel.name: channel.source for channel in pipeline.channels}
    feeds = {s.name: {port: sources.get(fed, fed) for port, fed in s.inputs} for s in pipeline.stages}
    samples = Samples({s.name: s for s in content.stages}, feeds, content.inputs, spanned(pipeline, context), load)
    for name in wanted(pipeline):
        stage, on = pipeline.stage(name), get(pipeline.stage(name).how, "on")
        assert on is not None, "`place` puts every stage on a device"
        arch = context.target.device(on.value[0]).arch
        batch = get(stage.how, "batch")
        try:
            chosen = (builder or builder_for)(arch)
            asks, most = samples.asks(name), batch.value if batch else 1
            made = engines(f"{stage.model}.{name}", load(name), asks, most, chosen, Settings())
        except (NoBuilder, Unfit, Unfaithful, Missing, Damaged, OSError) as error:  # OSError: of the cache
            raise EnginesFailed(f"`{name}`: {error}") from error
        for one in made:
            proof = one.obtained.artefact.proof
            state = f"proven on {proof.device}, error {proof.error:.1g}" if proof else "not yet run anywhere"
            why = f" ({one.obtained.why})" if one.obtained.why else ""
            told(f"{name}.{one.body}: {one.obtained.how} for {arch}, {one.obtained.artefact.size} bytes, {state}{why}")
        yield Engines(name, tuple(made))


def _part(content: Manifest, name: str, base: Path) -> Any:
    """The part of a stage, loaded into host memory."""
    from omnic.runtime import families
    from omnic.runtime.home import Home
    from omnic.runtime.weights import locate

    stage = next(s for s in content.stages if s.name == name)
    checkpoint = locate(content.model(stage.model or ""), base)
    load = families.load(checkpoint.model.family).load
    return load(checkpoint, stage.part, Home(stage.how["dtype"]), lambda done, total: None)


def spanned(pipeline: Pipeline, context: Context) -> list[Mapping[str, Any]]:
    """Values of all params, as sets that span every shape a request can have: the defaults, then each listed size and
    both ends of each range, by itself and with those of others, as far as the rules of the pipeline let them go."""
    from omnic.runtime.engines.samples import request

    opens = {request(s.value.field): s.value for stage in pipeline.stages for _, s in stage.keys if _open(s)}
    known = {**{param.name: param for param in pipeline.params}, **opens}
    defaults = {name: one.default for name, one in known.items()}
    free = {name: one.domain for name, one in opens.items()}
    found = [defaults]
    for corner in context.of(pipeline).corners or ({},):
        every = {name: domain for name, domain in {**free, **corner}.items() if domain is not None}
        ends = {name: _ends(domain) for name, domain in every.items() if known[name].type.kind in _SHAPING}
        found += [{**defaults, name: value} for name, values in ends.items() for value in values]
        for at in range(max(map(len, ends.values()), default=0)):
            found.append({**defaults, **{name: values[min(at, len(values) - 1)] for name, values in ends.items()}})
    return [
        params
        for i, params in enumerate(found)
        if params not in found[:i] and (i == 0 or all(_holds(rule, params) for rule in pipeline.requires))
    ]


def _open(setting: Setting) -> bool:
    return isinstance(setting.value, Open)


def _ends(domain: Domain) -> tuple[Any, ...]:
    if isinstance(domain, Choices):
        return domain.values
    assert isinstance(domain, Range)
    if isinstance(domain.low, Size) and isinstance(domain.high, Size):
        low, high = domain.low, domain.high
        return low, Size(low.width, high.height), Size(high.width, low.height), high
    return domain.low, domain.high


def _holds(rule: Any, params: Mapping[str, Any]) -> bool:
    try:
        return bool(evaluate(rule, params))
    except ExprError:  # a rule over inputs, which no sample breaks
        return True
