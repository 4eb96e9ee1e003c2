"""Requests that span what a pipeline may be asked for, as one of its stages sees them: `Samples`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from omnic.contract.types import Type
from omnic.expr import evaluate, parse
from omnic.manifest import Stage
from omnic.runtime.diffusion import Ask
from omnic.runtime.engines.bodies import bodies
from omnic.runtime.engines.calls import Unfit, recorded
from omnic.runtime.errors import RequestError

_SIZE = re.compile(r"\d+(x\d+)+")
_SIDE = 64  # of a picture that is given; it is brought to the size of what is made
_WORDS = 77  # tried of a text whose reader does not say how many tokens it takes


@dataclass(frozen=True, slots=True)
class Sample:
    """A request: values of all params, and how many words its texts have."""

    params: Mapping[str, Any]
    words: int


@dataclass(slots=True)
class Samples:
    """What comes before a stage is done as far as its shapes need: encoders read, denoisers take no step.

    `feeds` says of each stage what feeds its ports: `stage.port`, or the name of an input of the pipeline. `load`
    gives the part of a stage. The first of `params` is what is most often asked for; they also hold what requests set
    by themselves (`request`).
    """

    stages: Mapping[str, Stage]
    feeds: Mapping[str, Mapping[str, str]]
    inputs: Mapping[str, Type]
    params: Sequence[Mapping[str, Any]]
    load: Callable[[str], Any]
    _words: dict[str, int] = field(default_factory=dict)  # the most that a stage takes
    _given: dict[tuple[object, ...], Any] = field(default_factory=dict)  # what encoders gave

    def asks(self, stage: str) -> Iterator[Ask]:
        """What is asked of a stage with each of `params`, with the shortest texts and with the longest. What a stage
        before it refuses does not come here."""
        for params in self.params:
            for words in (1, self._most(stage)):
                with suppress(RequestError):
                    yield self._ask(stage, Sample(params, words))

    def _ask(self, stage: str, sample: Sample) -> Ask:
        ports, fed = self.stages[stage].inputs, self.feeds[stage]
        inputs = {port: self._value(fed[port], sample) if port in fed else None for port in ports}
        settings = self.stages[stage].keys.items()
        return Ask(0, inputs, {key.replace(".", "_"): _setting(value, sample.params) for key, value in settings})

    def _value(self, source: str, sample: Sample) -> Any:
        feeder, _, port = source.rpartition(".")
        kind = self.stages[feeder].outputs[port].kind if feeder else self.inputs[source].kind
        if kind == "text":
            return " ".join(["a"] * sample.words)
        if not feeder:
            return _given(kind, source)
        ask, part = self._ask(feeder, sample), self.load(feeder)
        if self.stages[feeder].kind == "denoise":
            return part.finish(part.prepare(ask))[port]
        key = (feeder, sample.words, repr(ask.settings))
        if key not in self._given:
            self._given[key] = whole(part.run(ask))
        return self._given[key][port]

    def _most(self, stage: str) -> int:
        """How many words a stage, and all before it, take."""
        if stage not in self._words:
            before = [feeder for source in self.feeds[stage].values() if (feeder := source.rpartition(".")[0])]
            most = min(map(self._most, before)) if before else self._tokens(stage)
            least = most if self._takes(stage, most) else 1
            while least < most - 1:
                middle = (least + most) // 2
                least, most = (middle, most) if self._takes(stage, middle) else (least, middle)
            self._words[stage] = least
        return self._words[stage]

    def _tokens(self, stage: str) -> int:
        bounds = [dict(type_.bounds).get("tokens") for type_ in self.stages[stage].outputs.values()]
        return max((int(bound) for bound in bounds if bound), default=_WORDS)

    def _takes(self, stage: str, words: int) -> bool:
        """Whether a stage takes texts of so many words. Where it has one module, they are counted and not read."""
        part = self.load(stage)
        try:
            ask = self._ask(stage, Sample(self.params[0], words))
            if hasattr(part, "prepare"):
                part.prepare(ask)
            elif "text" in self.stages[stage].inputs:
                held = bodies(part)
                with recorded({body.name: body.module for body in held}, run=len(held) > 1):
                    whole(part.run(ask))
        except RequestError:
            return False
        return True


def whole(found: Any) -> Mapping[str, Any]:
    """All that a transform gives, also in parts."""
    if isinstance(found, Mapping):
        return found
    return {name: value for some in found for name, value in some.items()}


def request(field: str) -> str:
    """The name under which `Samples.params` hold what a request sets by itself."""
    return f"request {field}"


def _setting(value: Any, params: Mapping[str, Any]) -> Any:
    """A key of a manifest: computed from params, left to the request, or as it stands."""
    if isinstance(value, Mapping):
        return evaluate(parse(value["param"]), params) if "param" in value else params.get(request(value["request"]))
    written = isinstance(value, str) and _SIZE.fullmatch(value)
    return evaluate(parse(value), {}) if written else value


def _given(kind: str, name: str) -> Any:
    if kind == "image":
        import numpy as np

        return np.zeros((_SIDE, _SIDE, 3), np.uint8)
    raise Unfit(f"no sample can be made of the input `{name}`, which is {kind}")
