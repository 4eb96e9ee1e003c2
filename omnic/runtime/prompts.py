"""Prompts for text encoders: token ids of the right length, as each kind of encoder was trained to see them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from omnic.runtime.errors import RequestError


def within(ids: Sequence[int], longest: int, text: str, field: str) -> Tensor:
    """Token ids as [1, tokens]. Raises RequestError that names `field` for blank text or too many tokens: a prompt is
    never cut in silence."""
    if field == "prompt" and not text.strip():
        raise RequestError("the prompt is blank", field)
    if len(ids) > longest:
        raise RequestError(f"the text is {len(ids)} tokens long; its encoder takes {longest}", field)
    return torch.tensor([list(ids)])
