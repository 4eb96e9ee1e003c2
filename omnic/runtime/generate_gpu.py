"""Steps of a decoder on a GPU, one captured graph for each count of rows; the host reads a step behind: `GpuSteps`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import torch
from torch import Tensor

from omnic.runtime.answer import Draw, Request
from omnic.runtime.generate_prompts import PagedModel, Prompts, on_device
from omnic.runtime.generate_steps import Flight
from omnic.runtime.graphs import Graphs
from omnic.runtime.kernels.sample import State, finish, likeliest, parts, uniform
from omnic.runtime.language import Span
from omnic.runtime.sampling import Rows, Sample
from omnic.runtime.scheduler import Work

_LOW = (1 << 64) - 1


class Kind(Enum):
    """What some row of a step asks for; each is a graph of its own for each count of rows."""

    GREEDY = "greedy"
    DRAWN = "drawn"  # from all that has a chance, at each row's temperature
    FULL = "full"  # what any request may ask for; what a row does not ask for changes nothing in it

    @classmethod
    def of(cls, draws: Sequence[Draw]) -> Kind:
        warm = [d for d in draws if not d.greedy]
        if any(d.repetition_penalty not in (None, 1) for d in draws) or any(
            d.top_k or (d.top_p is not None and d.top_p < 1) for d in warm
        ):
            return cls.FULL
        return cls.DRAWN if warm else cls.GREEDY


@dataclass(frozen=True, slots=True)
class _Flight:
    """Tokens on their way to pinned memory, which they have reached at `arrived`; -1 for none."""

    host: Tensor
    arrived: torch.cuda.Event | None

    def tokens(self) -> Sequence[int | None]:
        if self.arrived is not None:
            self.arrived.synchronize()
        return [token if token >= 0 else None for token in self.host.tolist()]


class GpuSteps:
    """Steps that leave their tokens on the device, where the next step finds them. Satisfies `generate_steps.Steps`.

    A step of streams is one replay, over the rows of the least bucket that holds them; the rows left over run in the
    slot that is nobody's. Pieces of prompts follow, several together in the least length that holds them. Tokens are
    keyed by seed and place in the answer: within a bucket a row's token does not depend on its neighbours.
    """

    lag = 1
    least = 256  # a shorter piece of a prompt takes as long: it is weights that it reads

    def __init__(self, model: PagedModel, sample: Sample) -> None:
        self.model, self._sample = model, sample
        self.vocabulary = model.vocabulary
        self.graphs = Graphs(model.device)
        self.state = State.of(model.slots, model.device)
        self.settings = torch.zeros(model.slots + 1, 4, dtype=torch.float64, device=model.device)
        shape = (model.slots + 1, model.vocabulary)
        self._seen = torch.zeros(shape, dtype=torch.bool, device=model.device)  # where a row has a penalty
        self._true = torch.ones((), dtype=torch.bool, device=model.device)
        self.buckets = buckets(model.slots)
        nobody = torch.full((self.buckets[-1],), model.slots, dtype=torch.int32, device=model.device)
        self._rows = {size: nobody[:size].clone() for size in self.buckets}
        self._held: dict[int, list[int]] = {}  # what `_rows` are
        self.out = torch.zeros(self.buckets[-1], dtype=torch.int32, device=model.device)
        self.prompts: Prompts  # once prepared
        self._first = torch.zeros(model.slots, dtype=torch.int32, device=model.device)
        pinned = model.device.type == "cuda"
        # one in flight, one being read, one being launched
        self._hosts = [torch.zeros(2 * model.slots, dtype=torch.int32, pin_memory=pinned) for _ in range(3)]
        self._launched = 0

    def prepare(self, chunk: int) -> int:
        """Captures all that can be asked for, the largest first."""
        for size in reversed(self.buckets):
            for kind in (Kind.FULL, Kind.DRAWN, Kind.GREEDY):
                self.graphs.capture((size, kind), partial(self._step, size, kind))
        self.prompts = Prompts(self.model, self.graphs, chunk)
        return min(chunk, self.model.context)

    def trial(self, tokens: int) -> None:
        spare = self.model.slots
        if tokens == 1:
            self.replay([spare], Kind.GREEDY)
        else:
            span = Span(spare, 0, (0,) * tokens, True)
            self.choose(self.prompts.run([span]), on_device([spare], self.model.device), Kind.GREEDY, self._first[:1])
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def launch(self, pairs: Sequence[tuple[Request, Work]]) -> Flight:
        streams = [request for request, work in pairs if work.start >= len(request.prompt)]
        prompts = list(pairs[len(streams) :])
        host = self._hosts[self._launched % len(self._hosts)]
        self._launched += 1
        count = len(streams)
        if streams:
            self.replay([r.scheduled.slot for r in streams], Kind.of([r.draw for r in streams]))
            host[:count].copy_(self.out[:count], non_blocking=True)
        if prompts:
            for request, work in prompts:
                if work.start == 0:
                    self._join(request)
            logits = self.prompts.run([request.span(work) for request, work in prompts])
            ended = [request for request, work in prompts if work.samples]
            if ended:
                out = self._first[: len(ended)]
                slots = on_device([request.scheduled.slot for request in ended], self.model.device)
                self.choose(logits, slots, Kind.of([request.draw for request in ended]), out)
                host[count : count + len(ended)].copy_(out, non_blocking=True)
                count += len(ended)
        return _Flight(host[:count], self._event())

    def stats(self) -> dict[str, float]:
        return self.graphs.stats()

    def _event(self) -> torch.cuda.Event | None:
        if self.model.device.type != "cuda":
            return None
        event: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch left it untyped
        event.record()
        return event

    def _join(self, request: Request) -> None:
        """Puts the request's settings where its slot is looked up. The step after its prompt moves it on to its end."""
        slot, draw = request.scheduled.slot, request.draw
        halves = [half - (half >> 63 << 64) for half in (draw.seed & _LOW, draw.seed >> 64 & _LOW)]
        settings = [
            1.0 if draw.temperature is None else draw.temperature,
            draw.top_k or 0,
            1.0 if draw.top_p is None else draw.top_p,
            1.0 if draw.repetition_penalty is None else draw.repetition_penalty,
        ]
        self.state.positions[slot] = len(request.prompt) - 1
        self.state.drawn[slot] = 0
        self.state.seeds[slot].copy_(torch.tensor(halves), non_blocking=True)
        self.settings[slot].copy_(torch.tensor(settings, dtype=torch.float64), non_blocking=True)
        if settings[3] != 1:
            self._seen[slot] = False
            self._seen[slot, on_device(request.prompt, self.model.device).long()] = True

    # --- launches --------------------------------------------------------------------------------------------------

    def replay(self, slots: list[int], kind: Kind) -> None:
        size = next(size for size in self.buckets if size >= len(slots))
        rows = slots + [self.model.slots] * (size - len(slots))
        if self._held.get(size) != rows:
            self._rows[size].copy_(torch.tensor(rows, dtype=torch.int32), non_blocking=True)
            self._held[size] = rows
        self.graphs.replay((size, kind))

    def _step(self, size: int, kind: Kind) -> None:
        slots = self._rows[size]
        self.choose(self.model.step(slots, self.state), slots, kind, self.out[:size])

    def choose(self, logits: Tensor, slots: Tensor, kind: Kind, out: Tensor) -> None:
        """A token of each row into `out` and its sequence, which moves on by one."""
        rows, early = len(slots), self.model.dependent
        values = torch.empty(rows, parts(self.vocabulary), dtype=torch.float32, device=logits.device)
        indices = torch.empty(values.shape, dtype=torch.int32, device=logits.device)
        likeliest(logits, values, indices, dependent=early)
        drawn = None
        if kind is not Kind.GREEDY:
            drawn = self._sample(logits.float(), self._settings_of(slots, kind))
        finish(values, indices, drawn, slots, self.state, out, dependent=early)
        if kind is Kind.FULL:
            self._seen.index_put_((slots.long(), out.clamp(min=0).long()), self._true)

    def _settings_of(self, slots: Tensor, kind: Kind) -> Rows:
        at = slots.long()
        settings = self.settings[at]
        noise = torch.empty(len(slots), dtype=torch.float64, device=slots.device)
        uniform(self.state, slots, noise)
        if kind is Kind.DRAWN:
            return Rows(noise, settings[:, 0].float())
        return Rows(
            noise, settings[:, 0].float(), settings[:, 1].long(), settings[:, 2], settings[:, 3].float(), self._seen[at]
        )


def buckets(slots: int) -> tuple[int, ...]:
    """Counts of rows that steps are captured for: powers of two, from 64 on multiples of 32, the last of all slots."""
    sizes = [size for size in (1, 2, 4, 8, 16, 32, *range(64, slots, 32)) if size < slots]
    return (*sizes, slots)
