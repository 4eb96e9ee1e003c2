"""Prompts for text encoders: token ids of the right length, as each kind of encoder was trained to see them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

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


def padded(
    tokenizer: Any, text: str, longest: int, field: str, *, written: str | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """Token ids, filled up to `longest` with the tokenizer's padding, and the mask of what is none: both [1, longest].
    `written` is the text with its template around it; `options` are the tokenizer's. Raises RequestError as `within`
    does."""
    whole = text if written is None else written
    within(tokenizer(whole, **options)["input_ids"], longest, text, field)
    return _filled(tokenizer, whole, longest, **options)


def clip_ids(tokenizer: Any, text: str, longest: int, field: str, *, cut: bool) -> Tensor:
    """Token ids for a text model of CLIP, [1, longest]: between begin and end, then padding, all of which it attends
    to. With `cut`, what goes beyond is left out: for CLIP beside an encoder that reads the whole. Raises RequestError
    as `within` does."""
    if not cut:
        within(tokenizer(text)["input_ids"], longest, text, field)
    return _filled(tokenizer, text, longest)[0]


def in_turns(tokenizer: Any, messages: Sequence[dict[str, Any]], **options: Any) -> str:
    """A conversation as the checkpoint's chat template writes it, up to where the model answers."""
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    return text


def _filled(tokenizer: Any, text: str, longest: int, **options: Any) -> tuple[Tensor, Tensor]:
    length = {"padding": "max_length", "max_length": longest, "truncation": True}
    batch = tokenizer(text, **length, **options, return_tensors="pt")
    return batch["input_ids"], batch["attention_mask"]


def cleaned(text: str) -> str:
    """Text without what spoils tokens: broken encodings mended, HTML entities and runs of blanks resolved."""
    from ftfy import fix_text

    return " ".join(html.unescape(html.unescape(fix_text(text))).split())
