"""Engines made ahead, in the place of the modules of a loaded stage: `Ahead`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnic.runtime.engines import artefact, gate
from omnic.runtime.engines.artefact import Artefact, Foreign
from omnic.runtime.engines.bodies import Body, bodies
from omnic.runtime.engines.builder import Builder, Session, builder_for
from omnic.runtime.engines.calls import Call, Shapes, Unfit, put_together

log = logging.getLogger("omnic.engines")


@dataclass(frozen=True, slots=True)
class Record:
    """A line of `engines.lock`: which stage and body, calls of which signature, and the directory of the engine."""

    stage: str
    body: str
    signature: str
    entry: str


class Ahead:
    """The engines of one stage of a build."""

    def __init__(self, folder: Path, records: Sequence[Record], builder: Builder | None = None) -> None:
        """`builder` runs them; left out, it is what this machine has for its GPU."""
        self._folder, self._records, self._builder = folder, records, builder

    def install(self, part: Any) -> None:
        """Puts the engines where the part has modules, and lets go of the modules' weights.

        An engine that has never run is held against its module first. Raises Foreign for an engine that is not of this
        machine or not whole, builder.NoBuilder and builder.NoRunner where none runs here, gate.Unfaithful.
        """
        if not self._records:
            raise Foreign(f"{self._folder} holds no engine for this stage: build again")
        known = {body.name: body for body in bodies(part)}
        for name in dict.fromkeys(record.body for record in self._records):
            if name not in known:
                raise Foreign(f"{self._folder} has an engine for `{name}`, which this stage does not have: build again")
            held = [self._held(record) for record in self._records if record.body == name]
            known[name].put(_Engines(known[name], held))

    def _held(self, record: Record) -> _Engine:
        found = artefact.read(self._folder / record.entry)
        builder = self._builder or builder_for(_here(found))
        found.require(builder=builder.name, version=builder.version, architecture=builder.architecture)
        return _Engine(record.signature, found, builder.session(found.blob()), builder.architecture)


def _here(found: Artefact) -> str:
    from omnic.runtime.engines.tensorrt import architecture_here

    here = architecture_here()
    if here is None:
        raise Foreign(f"{found.path} is an engine for {found.key.architecture}, and torch finds no GPU here")
    return here


@dataclass(slots=True)
class _Engine:
    signature: str
    artefact: Artefact
    session: Session
    device: str

    def run(self, call: Call) -> Any:
        made = self.session.run(dict(zip(call.names, call.tensors, strict=True)))
        return put_together([made[name] for name in self.artefact.names], self.artefact.nesting)


class _Engines:
    """Called like the inner module of a body."""

    def __init__(self, body: Body, engines: Sequence[_Engine]) -> None:
        self._name, self._engines = body.name, {engine.signature: engine for engine in engines}
        self._unproven = {engine.signature for engine in engines if engine.artefact.proof is None}
        self._inner: Any = body.inner
        if not self._unproven:
            self._let_go()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = Call.of(args, kwargs)
        engine = self._engines.get(call.signature)
        if engine is None:
            raise Unfit(f"`{self._name}` is called in a way that no engine was made for: build again")
        for each, tensor in zip(engine.artefact.key.inputs, call.tensors, strict=True):
            _require(self._name, each.name, tuple(tensor.shape), each.shapes)
        if call.signature in self._unproven:
            self._prove(engine, call)
        return engine.run(call)

    def _prove(self, engine: _Engine, call: Call) -> None:
        """On the first request's own tensors. Raises gate.Unfaithful."""
        forward = vars(self._inner).pop("forward", None)  # itself, where it is what the stage calls
        try:
            proof = gate.held(engine.session, engine.artefact.names, self._inner, call, engine.device)
        finally:
            if forward is not None:
                self._inner.forward = forward
        try:
            engine.artefact = engine.artefact.proven(proof)
        except OSError as error:  # a build that cannot be written is proven at each start
            log.warning("`%s`: the proof of its engine is not kept: %s", self._name, error)
        self._unproven.discard(engine.signature)
        if not self._unproven:
            self._let_go()

    def _let_go(self) -> None:
        """Of the weights, which the engines hold themselves."""
        for parameter in self._inner.parameters():
            parameter.data = parameter.data.new_empty(0)


def _require(body: str, name: str, shape: tuple[int, ...], shapes: Shapes) -> None:
    if shape not in shapes:
        raise Unfit(f"`{name}` of `{body}` is {list(shape)}, and its engine was built for {shapes}")
