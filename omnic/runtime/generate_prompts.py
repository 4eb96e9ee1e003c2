"""Pieces of prompts on a GPU, several in one captured graph by their rows together: `Prompts`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from omnic.runtime.graphs import Graphs
from omnic.runtime.kernels.prefill_attention import BLOCK
from omnic.runtime.language import Span

if TYPE_CHECKING:
    from omnic.runtime.kernels.sample import State

_LENGTHS = (BLOCK, 4 * BLOCK, 16 * BLOCK)  # rows that are captured, where a chunk is longer


class PagedModel(Protocol):
    """A decoder whose steps only launch. `slots` sequences, and one slot more that is nobody's."""

    vocabulary: int
    slots: int
    context: int  # tokens of a sequence, at most
    device: torch.device
    dependent: bool  # whether its kernels may start before those ahead of them have ended

    def step(self, slots: Tensor, state: State) -> Tensor: ...

    def prefill(self, tokens: Tensor, slots: Tensor, positions: Tensor, last: Tensor) -> Tensor: ...


class Prompts:
    """Captured graphs of a model's `prefill`. A piece starts at a multiple of BLOCK rows; rows between are nobody's."""

    def __init__(self, model: PagedModel, graphs: Graphs, chunk: int) -> None:
        """`chunk` is the most prompt tokens of a step."""
        self._model, self._graphs = model, graphs
        self.lengths = tuple(sorted({-(-chunk // BLOCK) * BLOCK, *(length for length in _LENGTHS if length < chunk)}))
        self._logits = torch.zeros(self.lengths[-1] // BLOCK, model.vocabulary, device=model.device)
        self._inputs: dict[int, Tensor] = {}  # tokens, slots, positions and last rows, of each length
        for length in reversed(self.lengths):
            rows = 3 * length + length // BLOCK
            self._inputs[length] = torch.zeros(rows, dtype=torch.int32, device=model.device)
            self._fill(length, [])
            graphs.capture(length, partial(self._body, length))

    def run(self, spans: Sequence[Span]) -> Tensor:
        """Runs pieces of prompts -> logits [spans that want them, vocabulary], float32."""
        found = []
        for together in packed(spans, self.lengths[-1]):
            length = next(length for length in self.lengths if length >= sum(map(_rows, together)))
            self._fill(length, together)
            self._graphs.replay(length)
            wanted = [index for index, span in enumerate(together) if span.logits]
            if wanted:
                found.append(self._logits[on_device(wanted, self._model.device)])
        return torch.cat(found) if found else self._logits[:0]

    def _fill(self, length: int, spans: Sequence[Span]) -> None:
        tokens, positions, slots, last = (
            [0] * length,
            [0] * length,
            [self._model.slots] * length,
            [0] * (length // BLOCK),
        )
        row = 0
        for index, span in enumerate(spans):
            end = row + len(span.tokens)
            tokens[row:end] = span.tokens
            slots[row:end] = [span.slot] * len(span.tokens)
            positions[row:end] = range(span.start, span.start + len(span.tokens))
            last[index] = end - 1
            row += _rows(span)
        self._inputs[length].copy_(on_device((*tokens, *slots, *positions, *last), self._model.device))

    def _body(self, length: int) -> None:
        tokens, slots, positions, last = torch.split(self._inputs[length], [length, length, length, length // BLOCK])
        self._logits[: length // BLOCK].copy_(self._model.prefill(tokens, slots, positions, last))


def on_device(values: Sequence[int], device: torch.device) -> Tensor:
    """int32, copied without waiting: the driver takes a small pageable copy's bytes before it returns."""
    return torch.tensor(values, dtype=torch.int32).to(device, non_blocking=True)


def _rows(span: Span) -> int:
    """Rows that a piece of a prompt takes."""
    return -(-len(span.tokens) // BLOCK) * BLOCK


def packed(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """Spans that run together, in their order: up to `most` rows at a time."""
    groups: list[list[Span]] = []
    room = 0
    for span in spans:
        if _rows(span) > room:
            groups.append([])
            room = most
        groups[-1].append(span)
        room -= _rows(span)
    return groups
