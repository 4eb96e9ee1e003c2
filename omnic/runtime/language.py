"""What the generate engine asks of a language model: `LanguageModel`, run on `Span`s of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive tokens of one sequence, run in one forward: a piece of a prompt, or the token to go on from."""

    slot: int
    start: int  # tokens of the sequence that are in the slot's cache already
    tokens: tuple[int, ...]
    logits: bool  # whether what follows the last token is wanted


class LanguageModel(Protocol):
    """A decoder with a cache of keys and values in numbered slots. Used from one thread at a time."""

    vocabulary: int
    weight_bytes: int  # of the loaded tensors, exactly; a tied head counts once

    def kv_bytes(self, slots: int, context: int) -> int:
        """What `allocate` takes, exactly."""
        ...

    def allocate(self, slots: int, context: int) -> None:
        """Reserves, and touches, the cache of `slots` sequences of up to `context` tokens."""
        ...

    def forward(self, spans: Sequence[Span]) -> Tensor:
        """Runs the spans (at most one a slot) together and keeps their keys and values.

        -> logits [spans that want them, vocabulary], float32, in the order of the spans.
        """
        ...
