"""What an engine runs the steps of its requests with: `Steps`, and `PlainSteps` over a model that answers at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from omnic.runtime.answer import Request, rows_of
from omnic.runtime.language import LanguageModel, Span
from omnic.runtime.sampling import Rows, Sample
from omnic.runtime.scheduler import Work

_TRIAL_TOKENS = 32


class Flight(Protocol):
    """A step that was launched."""

    def tokens(self) -> Sequence[int | None]:
        """Waits for the step. The token of each work that samples, in their order; None where the model gave logits
        that are not numbers."""
        ...


class Steps(Protocol):
    """Runs planned work. Used from the device's thread alone."""

    vocabulary: int
    lag: int  # so many steps may be in flight while the next is launched
    least: int  # prompt tokens below which a step gets no shorter

    def prepare(self, chunk: int) -> int:
        """Makes ready for steps of up to `chunk` prompt tokens -> how many to try it with."""
        ...

    def trial(self, tokens: int) -> None:
        """Runs a step of so many tokens of no request, one as in decoding, and waits for it."""
        ...

    def launch(self, pairs: Sequence[tuple[Request, Work]]) -> Flight:
        """Runs streams first, then prompts. A request's next step may be launched before this one was waited for."""
        ...

    def stats(self) -> dict[str, float]:
        """What the engine counts beside its own, from any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """What a hook is told before a step runs."""

    number: int
    work: tuple[Work, ...]


@dataclass(frozen=True, slots=True)
class Launched:
    """A step on its way."""

    work: tuple[Work, ...]
    drawing: tuple[Request, ...]  # whom it gives a token, in order
    began: float
    flight: Flight


Hook = Callable[[Step], None]
"""For tests: called on the device's thread before each step, which it may delay, or fail by raising."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that has ended."""

    found: Sequence[int | None]

    def tokens(self) -> Sequence[int | None]:
        return self.found


class PlainSteps:
    """Steps of a model that runs on this thread: each has ended when `launch` returns. Satisfies `Steps`."""

    lag = 0
    least = 8

    def __init__(self, model: LanguageModel, sample: Sample) -> None:
        self._model, self._sample = model, sample
        self.vocabulary = model.vocabulary

    def prepare(self, chunk: int) -> int:
        return min(chunk, _TRIAL_TOKENS)

    def trial(self, tokens: int) -> None:
        logits = self._model.forward([Span(0, 0, (0,) * tokens, True)])
        if tokens == 1:
            self._sample(logits, Rows(uniform=None))

    def launch(self, pairs: Sequence[tuple[Request, Work]]) -> Flight:
        logits = self._model.forward([request.span(work) for request, work in pairs])
        drawing = [request for request, work in pairs if work.samples]
        tokens = self._sample(logits, rows_of(drawing, logits.shape[-1])).tolist() if drawing else []
        sound = logits.amax(-1).isfinite().tolist()
        return Landed([token if fine else None for token, fine in zip(tokens, sound, strict=True)])

    def stats(self) -> dict[str, float]:
        return {}
