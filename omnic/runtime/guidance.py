"""Classifier-free guidance: how the predictions of a step's branches become one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Guidance:
    """`scales` has a number a step; where it is 1 or `branches` is 1, the prompt's prediction alone counts.

    The prompt's branch comes first, what it is kept away from second (Ho and Salimans, "Classifier-Free Diffusion
    Guidance", 2022). `keep_norm` scales the result to the length of the prompt's prediction along the last axis, as
    Qwen-Image does; `rescale` mixes in the result with the prompt's standard deviation (Lin et al., "Common
    Diffusion Noise Schedules and Sample Steps are Flawed", 2023, equation 15 and 16).
    """

    branches: int
    scales: tuple[float, ...]
    keep_norm: bool = False
    rescale: float = 0.0

    def active(self, step: int) -> int:
        """How many branches a step needs."""
        return self.branches if self.scales[step] != 1 else 1

    def combine(self, step: int, predictions: Sequence[Tensor]) -> Tensor:
        """predictions: one a branch that the step needed, of one shape -> one of that shape."""
        if len(predictions) == 1:
            return predictions[0]
        prompt, negative = predictions
        combined = negative + self.scales[step] * (prompt - negative)
        if self.keep_norm:
            combined = combined * (prompt.norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True))
        if self.rescale:
            axes = tuple(range(1, prompt.ndim))
            matched = combined * (prompt.std(axes, keepdim=True) / combined.std(axes, keepdim=True))
            combined = self.rescale * matched + (1 - self.rescale) * combined
        return combined


NONE = Guidance(1, ())
"""For families that bring their own, or none."""


def constant(scale: float, steps: int, branches: int = 2, **options: bool | float) -> Guidance:
    """The same scale at every step."""
    return Guidance(branches, (scale,) * steps, **options)  # type: ignore[arg-type]  # keep_norm and rescale
