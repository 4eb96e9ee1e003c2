"""Requests that span what a pipeline may be asked for, as one of its stages sees them: `Samples`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """A request: values of all params, and whether its texts are as long as they may be."""

    params: Mapping[str, Any]
    long: bool


@dataclass(slots=True)
class Samples:
    """What comes before a stage is done as far as its shapes need: encoders read, denoisers take no step.

    `feeds` says of each stage what feeds its ports: `stage.port`, or the name of an input of the pipeline. `load`
    gives the part of a stage. The first of `params` is what is most often asked for.
    """

    stages: Mapping[str, Stage]
    feeds: Mapping[str, Mapping[str, str]]
    inputs: Mapping[str, Type]
    params: Sequence[Mapping[str, Any]]
    load: Callable[[str], Any]
    _texts: dict[str, str] = field(default_factory=dict)  # the longest, by the stage that reads it

    def asks(self, stage: str) -> Iterator[Ask]:
        """What each sample asks of a stage."""
        for params in self.params:
            for long in (False, True):
                yield self._ask(stage, Sample(params, long))

    def _ask(self, stage: str, sample: Sample) -> Ask:
        ports, fed = self.stages[stage].inputs, self.feeds[stage]
        inputs = {port: self._value(stage, fed[port], sample) if port in fed else None for port in ports}
        return Ask(0, inputs, self._settings(stage, sample))

    def _settings(self, stage: str, sample: Sample) -> dict[str, Any]:
        return {key.replace(".", "_"): _setting(value, sample.params) for key, value in self.stages[stage].keys.items()}

    def _value(self, stage: str, source: str, sample: Sample) -> Any:
        """What comes from `source` to `stage`."""
        feeder, _, port = source.rpartition(".")
        kind = self.stages[feeder].outputs[port].kind if feeder else self.inputs[source].kind
        if kind == "text":
            return self._text(stage, sample) if sample.long else "a"
        if not feeder:
            return _given(kind, source)
        part, ask = self.load(feeder), self._ask(feeder, sample)
        if self.stages[feeder].kind == "denoise":
            return part.finish(part.prepare(ask))[port]
        found = part.run(ask)
        whole = found if isinstance(found, Mapping) else {name: value for some in found for name, value in some.items()}
        return whole[port]

    def _text(self, stage: str, sample: Sample) -> str:
        """As many words as the stage takes."""
        if stage not in self._texts:
            part, bound = self.load(stage), self._tokens(stage)
            least, most = 1, bound
            while least < most:
                middle = (least + most + 1) // 2
                fits = self._fits(part, stage, sample, "a " * middle)
                least, most = (middle, most) if fits else (least, middle - 1)
            self._texts[stage] = ("a " * least).strip()
        return self._texts[stage]

    def _tokens(self, stage: str) -> int:
        bounds = [dict(type_.bounds).get("tokens") for type_ in self.stages[stage].outputs.values()]
        return max((int(bound) for bound in bounds if bound), default=_WORDS)

    def _fits(self, part: Any, stage: str, sample: Sample, text: str) -> bool:
        """Whether the text is read. Of one module, its tokens alone are counted; of several, each counts its own."""
        fed, held = self.feeds[stage], bodies(part)
        ask = Ask(0, {port: text if port in fed else None for port in self.stages[stage].inputs}, {})
        try:
            with recorded({body.name: body.module for body in held}, run=len(held) > 1):
                part.run(ask)
        except RequestError:
            return False
        return True


def _setting(value: Any, params: Mapping[str, Any]) -> Any:
    """A key of a manifest: computed from params, left to the request, or as it stands."""
    if isinstance(value, Mapping):
        return evaluate(parse(value["param"]), params) if "param" in value else None
    written = isinstance(value, str) and _SIZE.fullmatch(value)
    return evaluate(parse(value), {}) if written else value


def _given(kind: str, name: str) -> Any:
    if kind == "image":
        import numpy as np

        return np.zeros((_SIDE, _SIDE, 3), np.uint8)
    raise Unfit(f"no sample can be made of the input `{name}`, which is {kind}")
