"""Classifier-free guidance: how the predictions of a step's branches become one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

Own = Callable[[int, Sequence[Tensor], Tensor, int], Tensor]
"""A family's own rule: (step, a prediction a branch, x, which tensor of the job's `x` it is of) -> the prediction."""


@dataclass(frozen=True, slots=True)
class Guidance:
    """Branches in the order of how much they know: the prompt's first, what it is kept away from last.

    `scales` has an entry a step: a number where there are two branches (Ho and Salimans, "Classifier-Free Diffusion
    Guidance", 2022), or one for each branch but the last, which weighs how it differs from the next: with branches
    (text and picture, picture, neither) and scales (s, p) that is `neither + p (picture - neither) + s (text -
    picture)` (Brooks et al., "InstructPix2Pix", 2023, equation 3). Last branches whose scale is 1 are not run: they
    cancel out.

    `keep_norm` scales the result to the length of the prompt's prediction along the last axis, as Qwen-Image does;
    `rescale` mixes in the result with the prompt's standard deviation (Lin et al., "Common Diffusion Noise Schedules
    and Sample Steps are Flawed", 2023, equations 15 and 16). `own` takes the place of all that and always gets every
    branch. Models that were distilled to follow a scale take it as an input: their families put it among a job's
    conditions, and need no branch for it.
    """

    branches: int
    scales: tuple[float | tuple[float, ...], ...] = ()
    keep_norm: bool = False
    rescale: float = 0.0
    own: Own | None = None

    def active(self, step: int) -> int:
        """How many branches a step needs, counted from the first."""
        if self.own is not None or self.branches == 1:
            return self.branches
        scales = self._scales(step)
        while scales and scales[-1] == 1:
            scales = scales[:-1]
        return len(scales) + 1

    def combine(self, step: int, predictions: Sequence[Tensor], x: Tensor, which: int = 0) -> Tensor:
        """predictions: one a branch that the step needed, of the shape of x -> one of that shape.

        x is what they were predicted from, number `which` of the job's tensors.
        """
        if self.own is not None:
            return self.own(step, predictions, x, which)
        if len(predictions) == 1:
            return predictions[0]
        prompt, combined = predictions[0], weighed(predictions, self._scales(step), keep_norm=self.keep_norm)
        if self.rescale:
            axes = tuple(range(1, prompt.ndim))
            matched = combined * (prompt.std(axes, keepdim=True) / combined.std(axes, keepdim=True))
            combined = self.rescale * matched + (1 - self.rescale) * combined
        return combined

    def _scales(self, step: int) -> tuple[float, ...]:
        scale = self.scales[step]
        return scale if isinstance(scale, tuple) else (scale,)


def weighed(predictions: Sequence[Tensor], scales: Sequence[float | Tensor], *, keep_norm: bool) -> Tensor:
    """Two or more branches as one: by a scale for each but the last, numbers or what spreads over a prediction."""
    combined = predictions[-1]
    for at in reversed(range(len(predictions) - 1)):
        combined = combined + scales[at] * (predictions[at] - predictions[at + 1])
    if keep_norm:
        combined = combined * (predictions[0].norm(dim=-1, keepdim=True) / combined.norm(dim=-1, keepdim=True))
    return combined


NONE = Guidance(1)
"""The prompt's prediction as it is: for models without guidance, or with it distilled into them."""


def constant(
    scale: float | tuple[float, ...], steps: int, branches: int = 2, *, keep_norm: bool = False, rescale: float = 0.0
) -> Guidance:
    """The same scale, or scales, at every step."""
    return Guidance(branches, (scale,) * steps, keep_norm, rescale)
