"""From logits to a token: kernels that generated code composes, and the noise they draw with.

Each takes a number a row, one number for all rows, or None where no row asks for it. What a row gives depends on
that row alone. Nothing here reads a value back to the host, except on a CPU, where that is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

Setting: TypeAlias = Tensor | float | None


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows of a batch are sampled with; None where no row asks for it, so that its kernel is passed over."""

    uniform: Tensor | None  # float64 [rows]: what each row draws with; None if every row is greedy
    temperature: Tensor | None = None  # float32 [rows]
    top_k: Tensor | None = None  # int64 [rows]
    top_p: Tensor | None = None  # float64 [rows]
    repetition_penalty: Tensor | None = None  # float32 [rows]
    seen: Tensor | None = None  # bool [rows, vocabulary]: the tokens of each row's prompt and answer so far


Sample: TypeAlias = Callable[[Tensor, Rows], Tensor]
"""(logits [rows, vocabulary] float32, rows) -> tokens [rows] int64."""

_CANDIDATES = 512  # on a CPU, so many of the likeliest tokens are looked at before all are sorted
_MASK64 = (1 << 64) - 1


def penalise(logits: Tensor, seen: Tensor | None, penalty: Tensor | None) -> Tensor:
    """Logits with those of tokens that were `seen` made smaller: divided by `penalty` where positive, multiplied by
    it where negative (Keskar et al., "CTRL", 2019, section 4.1). 1 changes nothing."""
    if seen is None or penalty is None:
        return logits
    factor = _column(penalty, logits)
    return torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)


def scale(logits: Tensor, temperature: Setting) -> Tensor:
    """Logits [rows, vocabulary] divided by `temperature`; rows where it is 0 stay as they are."""
    if temperature is None:
        return logits
    divisor = _column(temperature, logits)
    # from the largest down, so that a tiny temperature gives -inf and never inf - inf
    return (logits - logits.amax(-1, keepdim=True)) / torch.where(divisor > 0, divisor, 1.0)


def keep_top_k(logits: Tensor, top_k: Setting) -> Tensor:
    """-inf for all but the `top_k` largest of each row, and those equal to the last of them. 0 keeps all."""
    if top_k is None:
        return logits
    vocabulary = logits.shape[-1]
    count = _column(top_k, logits).long().clamp(max=vocabulary)
    candidates = max(1, int(count.max())) if logits.device.type == "cpu" else vocabulary
    last = logits.topk(candidates).values.gather(-1, (count - 1).clamp(min=0))
    return logits.masked_fill((logits < last) & (count > 0), -torch.inf)


def keep_top_p(logits: Tensor, top_p: Setting) -> Tensor:
    """-inf for all but the fewest likeliest tokens of each row that together have probability `top_p`, and those as
    likely as the last of them. 1 keeps all, 0 the likeliest."""
    if top_p is None:
        return logits
    share = _column(top_p, logits).double()
    chances = logits.softmax(-1)
    return logits.masked_fill((chances < _least_of(chances, share)) & (share < 1), -torch.inf)


def _least_of(chances: Tensor, share: Tensor) -> Tensor:
    """The chance [rows, 1] of the last token that is needed, from the likeliest down, to reach `share` [rows, 1]."""
    vocabulary = chances.shape[-1]
    few = min(_CANDIDATES, vocabulary) if chances.device.type == "cpu" else vocabulary
    least, reached = _last_needed(chances.topk(few).values, share)
    if few < vocabulary:
        flat = ~reached & (share < 1).squeeze(-1)  # rows that need more than those few
        if flat.any():
            least[flat], _ = _last_needed(chances[flat].sort(descending=True).values, share[flat])
    return least


def _last_needed(ordered: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    """Of chances from the largest down, the one at which their sum reaches `share`, or the last; whether it does."""
    reached = ordered.cumsum(-1, dtype=torch.float64) >= share
    enough = reached[:, -1].clone()
    reached[:, -1] = True
    return ordered.gather(-1, reached.byte().argmax(-1, keepdim=True)), enough


def draw(logits: Tensor, uniform: Tensor | None, temperature: Setting = None) -> Tensor:
    """A token of each row, int64 [rows]: the one at which the summed chances pass `uniform` (float64 [rows], from 0
    to below 1); the likeliest where `temperature` is 0, and everywhere without `uniform`."""
    likeliest = logits.argmax(-1)
    if uniform is None:
        return likeliest
    summed = logits.softmax(-1).cumsum(-1, dtype=torch.float64)
    # `right` passes over tokens of no chance, also where uniform is 0
    drawn = torch.searchsorted(summed, uniform.unsqueeze(-1) * summed[:, -1:], right=True).squeeze(-1)
    if temperature is None:
        return drawn
    return torch.where(_column(temperature, logits).squeeze(-1) > 0, drawn, likeliest)


def _column(setting: Tensor | float, logits: Tensor) -> Tensor:
    """A setting as a column [rows, 1]."""
    if isinstance(setting, Tensor):
        return setting.unsqueeze(-1)
    return torch.full((logits.shape[0], 1), setting, device=logits.device)


# --- noise ------------------------------------------------------------------------------------------------------------


def uniform(seed: int, position: int) -> float:
    """The number from 0 to below 1, in steps of 2^-52, that is drawn with at a position of an answer.

    It is Philox 4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) keyed by the seed, with
    the position as its counter: whatever runs beside it, the same seed and position give the same number.
    """
    a, b, c, d = position & _MASK64, 0, 0, 0
    key0, key1 = seed & _MASK64, seed >> 64 & _MASK64
    for _ in range(10):
        left, right = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = (right >> 64) ^ b ^ key0, right & _MASK64, (left >> 64) ^ d ^ key1, left & _MASK64
        key0, key1 = (key0 + 0x9E3779B97F4A7C15) & _MASK64, (key1 + 0xBB67AE8584CAA73B) & _MASK64
    return (a >> 12) * 2.0**-52
