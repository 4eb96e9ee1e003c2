"""The engines of one stage: its bodies recorded, exported, built and, where they can run, held against the bodies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from omnic.runtime.diffusion import Ask, predict
from omnic.runtime.engines import gate, store
from omnic.runtime.engines.artefact import Artefact, Input, read
from omnic.runtime.engines.bodies import Body, bodies
from omnic.runtime.engines.builder import Builder, NoRunner, Settings
from omnic.runtime.engines.calls import Call, Unfit, ranges, recorded
from omnic.runtime.engines.export import export
from omnic.runtime.engines.samples import whole
from omnic.runtime.engines.store import Obtained
from omnic.runtime.errors import RequestError

_PARTS = 4  # the first frame of a video, the second, and all after: one more than kinds of frame


@dataclass(frozen=True, slots=True)
class Made:
    """The engine for calls of one signature of a body, and how it was come by."""

    body: str
    signature: str
    obtained: Obtained


def engines(label: str, part: Any, asks: Iterable[Ask], batch: int, builder: Builder, settings: Settings) -> list[Made]:
    """The engines of a loaded part for what `asks` span, up to `batch` of them in one forward of a denoiser.

    Raises Unfit, which names the body, for one that cannot be exported or built, gate.Unfaithful for an engine that
    computes something else.
    """
    with torch.inference_mode():
        seen = observed(part, asks, batch)
    made = []
    for body, calls in seen:
        for alike in by_signature(calls):
            try:
                obtained = _engine(f"{label}.{body.name}", body, alike, builder, settings)
            except Unfit as error:
                raise Unfit(f"`{body.name}`: {error}") from error
            made.append(Made(body.name, alike[0].signature, obtained))
    return made


def observed(part: Any, asks: Iterable[Ask], batch: int) -> list[tuple[Body, list[Call]]]:
    """The bodies of a part that requests reach, each with how it is called. Raises Unfit where a request reaches
    none."""
    held = bodies(part)
    calls: dict[str, list[Call]] = {body.name: [] for body in held}
    denoises = hasattr(part, "prepare")
    several = len(held) > 1 or hasattr(part, "streams")  # the first call is not all there is
    for ask in asks:
        before = sum(map(len, calls.values()))
        try:
            works = list(_forwards(part, ask, batch)) if denoises else [partial(_run, part, ask)]
        except RequestError:
            continue  # a request that is refused has no shapes
        for work in works:
            with _inner(held), recorded({body.name: body.inner for body in held}, run=several and not denoises) as seen:
                work()
            for name, found in seen.items():
                calls[name] += found
        if sum(map(len, calls.values())) == before:
            names = ", ".join(f"`{body.name}`" for body in held) or "any module"
            raise Unfit(f"a request with {_told(ask)} does not run {names} as a whole")
    if not any(calls.values()):
        raise Unfit("it refuses every sample of a request")
    return [(body, calls[body.name]) for body in held if calls[body.name]]


def _run(part: Any, ask: Ask) -> None:
    """Of what comes in many parts, as many as differ."""
    found = part.run(ask)
    whole(found if isinstance(found, Mapping) else islice(found, _PARTS))


def _forwards(part: Any, ask: Ask, batch: int) -> Iterator[Callable[[], Any]]:
    """A forward of each kind that the steps of a request have: by itself, and with as many as may share it."""
    for job in part.prepare(ask).kinds():
        for count in sorted({1, batch}):
            yield partial(predict, part.forward, [job] * count)


@contextmanager
def _inner(held: Sequence[Body]) -> Iterator[None]:
    """Within it, modules run what is exported in their place."""
    try:
        for body in held:
            if body.inner is not body.module:
                body.put(body.inner)
        yield
    finally:
        for body in held:
            body.restore()


def by_signature(calls: Sequence[Call]) -> list[list[Call]]:
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.signature, []).append(call)
    return list(groups.values())


def _engine(label: str, body: Body, calls: Sequence[Call], builder: Builder, settings: Settings) -> Obtained:
    first, shapes = calls[0], ranges(calls)
    inputs = [
        Input(name, str(tensor.dtype).removeprefix("torch."), shape)
        for name, tensor, shape in zip(first.names, first.tensors, shapes, strict=True)
    ]
    with TemporaryDirectory(prefix="omnic-engine-") as folder:
        exported = export(body.inner, first, shapes, Path(folder))
        obtained = store.obtain(label, exported, inputs, builder, settings)
    if obtained.artefact.proof is not None:
        return obtained
    try:
        session = builder.session(obtained.artefact.blob())
    except NoRunner:
        return obtained  # and so unproven: where it is loaded it can run, and is held there
    try:
        proof = gate.held(session, obtained.artefact.names, body.inner, first, builder.architecture)
    except gate.Unfaithful as error:
        shutil.rmtree(obtained.artefact.path)
        raise gate.Unfaithful(f"`{body.name}`: {error}") from None
    return Obtained(obtained.artefact.proven(proof), obtained.how, obtained.why)


def taken(artefact: Artefact, folder: Path) -> Artefact:
    """The artefact in a folder of a build, under its own name: the same bytes on disk where the file system can."""
    target = folder / artefact.path.name
    shutil.rmtree(target, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(artefact.path, target, copy_function=_linked)
    return read(target)


def _linked(source: str, target: str) -> None:
    try:
        Path(target).hardlink_to(source)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _told(ask: Ask) -> str:
    return ", ".join(f"{key} = {value}" for key, value in ask.settings.items()) or "these inputs"
