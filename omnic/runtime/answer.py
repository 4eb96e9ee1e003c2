"""One answer in the making: what was asked for, what has been drawn, and how it gets to its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from omnic.runtime.edges import Port
from omnic.runtime.language import Span
from omnic.runtime.sampling import Rows, uniform
from omnic.runtime.scheduler import Sequence as Scheduled
from omnic.runtime.scheduler import Work
from omnic.runtime.text import Detokeniser, Stops


@dataclass(frozen=True, slots=True)
class Draw:
    """How a request's tokens are drawn. What generated code pins is left None here."""

    seed: int
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(eq=False)
class Request:
    """An answer in the making. The engine's thread owns it, but for `delivered`, `done` and the ports."""

    prompt: tuple[int, ...]
    max_tokens: int
    draw: Draw
    stop_ids: frozenset[int]
    stops: Stops
    detokeniser: Detokeniser
    text: Port
    tokens: Port
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[str]  # gets the finish reason, or the failure
    answer: list[int] = field(default_factory=list)
    cancelled: bool = False
    posted: int = 0  # deliveries to the event loop that used credit,
    delivered: int = 0  # and how many of them have arrived
    flying: int = 0  # steps that will give it a token, and were launched
    queued_at: float = 0.0
    began_at: float = 0.0
    first_token_at: float = 0.0
    ended_at: float = 0.0
    scheduled: Scheduled = field(init=False)
    seen: torch.Tensor | None = None  # bool [vocabulary]: tokens of prompt and answer, where a penalty needs them

    def __post_init__(self) -> None:
        self.scheduled = Scheduled(len(self.prompt))

    @property
    def ready(self) -> bool:
        """Whether it wants a next step, and its readers can take what that would give."""
        if self.scheduled.prefilling:
            return True
        if self.scheduled.generated >= self.max_tokens:
            return False  # its last token is on its way
        return min(self.text.credit, self.tokens.credit) > self.posted - self.delivered + self.flying

    def span(self, work: Work) -> Span:
        known = self.prompt if self.scheduled.prefilling else self.answer
        start = work.start if self.scheduled.prefilling else work.start - len(self.prompt)
        return Span(self.scheduled.slot, work.start, tuple(known[start : start + work.length]), work.samples)

    def take(self, token: int) -> Delivery:
        """The next token was drawn: what there is to deliver for it."""
        self.answer.append(token)
        if self.seen is not None:
            self.seen[token] = True
        if token in self.stop_ids:
            return Delivery(self, self._rest(), token, "stop")
        text = self.stops.push(self.detokeniser.push(token))
        if self.stops.found is not None:
            return Delivery(self, text, token, "stop")
        if len(self.answer) < self.max_tokens:
            return Delivery(self, text, token)
        text += self._rest()
        return Delivery(self, text, token, "stop" if self.stops.found is not None else "length")

    def tokens_seen(self, vocabulary: int) -> torch.Tensor:
        """Which tokens stand in the prompt or the answer so far, bool [vocabulary]."""
        if self.seen is None:
            self.seen = torch.zeros(vocabulary, dtype=torch.bool)
            self.seen[[*self.prompt, *self.answer]] = True
        return self.seen

    def _rest(self) -> str:
        text = self.stops.push(self.detokeniser.flush())
        return text if self.stops.found is not None else text + self.stops.flush()


class Delivery(NamedTuple):
    """What a step gives a request: text, a token, and in the end why it ended."""

    request: Request
    text: str
    token: int | None
    end: str | Exception | None = None


def deliver(deliveries: Sequence[Delivery]) -> None:
    """On the event loop."""
    for request, text, token, end in deliveries:
        request.delivered += 1
        if request.cancelled:
            continue
        if token is not None:
            request.tokens.send(token)
        if text:
            request.text.send(text)
        if end is None:
            continue
        failure = end if isinstance(end, Exception) else None
        request.tokens.close(failure)
        request.text.close(failure)
        if request.done.done():
            continue
        if failure:
            request.done.set_exception(failure)
        else:
            request.done.set_result(str(end))


def rows_of(requests: Sequence[Request], vocabulary: int) -> Rows:
    """What each of the requests draws its next token with."""
    draws = [request.draw for request in requests]
    penalties = [1.0 if d.repetition_penalty is None else d.repetition_penalty for d in draws]
    penalty = seen = None
    if any(p != 1 for p in penalties):
        penalty = torch.tensor(penalties)
        seen = torch.stack([request.tokens_seen(vocabulary) for request in requests])
    if all(draw.greedy for draw in draws):
        return Rows(None, repetition_penalty=penalty, seen=seen)
    noise = [uniform(request.draw.seed, len(request.answer)) for request in requests]
    warm = any(draw.temperature is not None for draw in draws)
    few = any(draw.top_k for draw in draws)
    likely = any(draw.top_p is not None and draw.top_p < 1 for draw in draws)
    return Rows(
        torch.tensor(noise, dtype=torch.float64),
        torch.tensor([1.0 if d.temperature is None else d.temperature for d in draws]) if warm else None,
        torch.tensor([d.top_k or 0 for d in draws]) if few else None,
        torch.tensor([1.0 if d.top_p is None else d.top_p for d in draws], dtype=torch.float64) if likely else None,
        penalty,
        seen,
    )
