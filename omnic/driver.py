"""The phases in order: parse, check, lower, plan, emit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from omnic import __version__
from omnic.diagnostics import Sink
from omnic.source import Source, decode, load

if TYPE_CHECKING:
    from omnic import manifest
    from omnic.catalog import part as catalog
    from omnic.dsl.lower import Lowered
    from omnic.ir.pipeline import Pipeline
    from omnic.passes import Context, Pass
    from omnic.runtime.engines.builder import Builder
    from omnic.runtime.lock import FileRecord, Lock, ModelRecord


@dataclass(frozen=True, slots=True)
class Front:
    """A checked and lowered pipeline, before any pass."""

    path: Path
    source: Source
    sources: tuple[Path, ...]  # every file it was made of: itself, imports, python stages
    lowered: Lowered
    deploy: str | None
    target: str | None
    sets: tuple[str, ...]
    deploys: tuple[str, ...] = ()  # the names of all deploy blocks for it


@dataclass(frozen=True, slots=True)
class Planned:
    """A pipeline after passes, with what they knew."""

    front: Front
    pipeline: Pipeline
    context: Context


@dataclass(frozen=True, slots=True)
class BuildResult:
    out: Path
    planned: Planned
    lock: Lock
    changed: bool  # false where the directory already held exactly this build
    engines: tuple[str, ...] = ()  # a line for each that was made, or taken from the cache


def front(
    path: Path, sink: Sink, *, deploy: str | None = None, target: str | None = None, sets: tuple[str, ...] = ()
) -> Front | None:
    """Parse, check and lower the (one) pipeline of a file; None, and errors in `sink`, where that fails."""
    from omnic.catalog.resolve import resolve
    from omnic.dsl.check import check
    from omnic.dsl.lower import lower
    from omnic.dsl.parse import parse

    source = Source(str(path), decode(load(path)))
    file = parse(source, sink)
    checked = file and check(file, base=path.parent, resolve=resolve, sink=sink)
    if checked is None or sink.has_errors:
        return None
    lowered = lower(checked, None, deploy, sets, sink)
    if lowered is None or sink.has_errors:
        return None
    deploys = tuple(name for name, block in checked.deploys.items() if block.pipeline == lowered.pipeline.name)
    return Front(path, source, lowered.sources, lowered, deploy, target, sets, deploys)


def plan(
    front: Front, sink: Sink, *, passes: tuple[Pass, ...] | None = None, print_after: str | None = None
) -> Planned | None:
    """The pipeline after `passes` (the default order if None); None, and errors in `sink`, where one fails."""
    from omnic import passes as p

    context = p.Context.make(front.lowered, target=front.target, sink=sink)
    if context is None:
        return None
    pipeline = p.run(p.DEFAULT if passes is None else passes, front.lowered.pipeline, context, print_after=print_after)
    if front.deploys and front.deploy is None and front.target is None:
        chosen = " or ".join(f"`--deploy {name}`" for name in front.deploys)
        sink.advise(
            "does-not-fit",
            f"without --deploy it is planned for this machine's processor; `omnic plan` and `build` take {chosen}",
        )
    return None if sink.has_errors else Planned(front, pipeline, context)


def build(
    path: Path,
    out: Path,
    sink: Sink,
    *,
    deploy: str | None = None,
    target: str | None = None,
    sets: tuple[str, ...] = (),
    locked: bool = False,
    versions: Versions | None = None,
    ahead: bool = True,
    builder: Callable[[str], Builder] | None = None,
) -> BuildResult | None:
    """Compile a file into a build directory. With `ahead`, its engines are made, by what `builder` gives, if given.

    None, and errors in `sink`, where the source is at fault. Raises runtime.errors.Stale with `locked` and
    something drifted, codegen.files.Occupied if `out` may not be written, engines.EnginesFailed.
    """
    from omnic import engines
    from omnic.codegen import files
    from omnic.runtime import lock as locks
    from omnic.runtime.errors import Stale

    seen = front(path, sink, deploy=deploy, target=target, sets=sets)
    planned = plan(seen, sink) if seen else None
    if planned is None:
        return None
    lock, content = emit(planned, versions or Versions.here(planned))
    said: list[str] = []
    with files.alone(out):
        before = _before(out, locked)
        if before is not None and locked and (drift := locks.difference(before, lock)):
            raise Stale(f"{out}: {drift}; build without --locked to take it up")
        made = engines.make(planned, content, said.append, builder) if ahead else ()
        local = locks.local(path.resolve(), engines.records(made))
        unchanged = before == lock and all((out / n).exists() for n in (*content, locks.LOCAL_FILE))
        files.put({**content, locks.FILE: lock.dump(), locks.LOCAL_FILE: local}, out, before.outputs if before else {})
        engines.put(made, out)
    return BuildResult(out, planned, lock, changed=not unchanged, engines=tuple(said))


def _before(out: Path, locked: bool) -> Lock | None:
    """The lock of an earlier build in `out`, if there is one. Raises Stale with `locked` if there is none to hold to,
    Occupied without if it cannot be read."""
    from omnic.codegen.files import Occupied
    from omnic.runtime import lock as locks
    from omnic.runtime.errors import Stale

    if not (out / locks.FILE).exists():
        if locked:
            raise Stale(f"{out} has no {locks.FILE} to hold to; build once without --locked")
        return None
    try:
        return locks.read(out)
    except Stale as error:
        if locked:
            raise
        what = f"what in {out} is of an earlier build cannot be told"
        raise Occupied(f"{str(error).removesuffix(': build again')}, so {what}: remove it") from None


@dataclass(frozen=True, slots=True)
class Versions:
    """What a build takes from its surroundings, gathered in one place so that a golden build can fix it."""

    omnic: str = __version__
    packages: dict[str, str | None] = field(default_factory=dict)
    digests: dict[str, dict[str, FileRecord]] | None = None  # model: file: {"bytes", "sha256"}; None: read them

    @classmethod
    def here(cls, planned: Planned) -> Versions:
        from omnic.runtime import lock as locks

        return cls(packages=locks.installed(locks.packages(models(planned))))


def emit(planned: Planned, versions: Versions) -> tuple[Lock, dict[str, bytes]]:
    """The lock and the generated files of a planned pipeline. Reads sources and weights, writes nothing."""
    from omnic import manifest
    from omnic.codegen.names import python_files
    from omnic.codegen.record import manifest_of
    from omnic.codegen.render import render
    from omnic.codegen.views import module_view
    from omnic.contract.openapi import openapi_json
    from omnic.passes.report import plan_json, plan_markdown
    from omnic.runtime import lock as locks

    source = planned.front.path
    digest = locks.digest(source)
    view = module_view(planned.pipeline, source.name, digest, versions.omnic)
    content = manifest_of(
        planned.pipeline,
        models(planned),
        view.slices,
        source=source.name,
        source_sha256=digest,
        omnic=versions.omnic,
    )
    out: dict[str, bytes] = {
        "manifest.json": manifest.dump(content),
        "pipeline.py": render("pipeline.py", view).encode(),
        "server.py": render("server.py", view).encode(),
        "openapi.json": openapi_json(content),
        "plan.json": plan_json(planned.pipeline, planned.context).encode(),
        "plan.md": plan_markdown(planned.pipeline, planned.context).encode(),
    }
    for file, name in python_files(planned.pipeline).items():
        out[f"python/{name}"] = load(source.parent / file)
    lock = locks.Lock(
        omnic=versions.omnic,
        target=planned.pipeline.target,
        deploy=planned.front.deploy,
        settings=planned.front.sets,
        sources={_relative(p, source.parent): locks.digest(p) for p in _sources(planned)},
        models=_model_records(planned, versions),
        packages=versions.packages,
        outputs={name: hashlib.sha256(data).hexdigest() for name, data in sorted(out.items())},
    )
    return lock, out


def models(planned: Planned) -> tuple[manifest.Model, ...]:
    """The checkpoints of the pipeline as the runtime is told of them, in source order."""
    from omnic import manifest
    from omnic.catalog.resolve import ModelSource

    out = []
    for declared in planned.pipeline.models:
        model = planned.front.lowered.models[declared.name]
        source = ModelSource.parse(declared.source)
        out.append(
            manifest.Model(
                name=declared.name,
                source=source.kind,
                location=source.name,
                family=model.family,
                format=model.format,
                config=model.config,
                files=model.files,
                revision=model.revision,
            )
        )
    return tuple(out)


def _model_records(planned: Planned, versions: Versions) -> dict[str, ModelRecord]:
    from omnic.runtime import lock as locks

    records: dict[str, ModelRecord] = {}
    for declared in planned.pipeline.models:
        model: catalog.Model = planned.front.lowered.models[declared.name]
        if versions.digests is not None:
            files = versions.digests[declared.name]
        else:
            memory = locks.cache_directory() / "digests"
            files = {
                f.path: {"bytes": f.bytes, "sha256": locks.digest(Path(model.root) / f.path, memory)}
                for f in model.files
                if model.root is not None
            }
        records[declared.name] = {"source": declared.source, "revision": model.revision, "files": files}
    return records


def _sources(planned: Planned) -> tuple[Path, ...]:
    """Every file the plan depends on: the source, what it imports, its python stages, the target's file."""
    target = planned.context.target.file
    return planned.front.sources + ((target,) if target else ())


def _relative(path: Path, base: Path) -> str:
    import os

    return Path(os.path.relpath(path, base)).as_posix()
