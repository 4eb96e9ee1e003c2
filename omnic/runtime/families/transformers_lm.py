"""Decoders that omnic has no forward for (`catalog/kin.py`), run by transformers' own, one sequence after the other."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.convert import directory
from omnic.runtime.language import Span
from omnic.runtime.tensors import Loaded, dtype_of
from omnic.runtime.weights import Checkpoint, Damaged


def load(checkpoint: Checkpoint, dtype: str, loaded: Loaded) -> Adapted:
    """A causal language model that transformers knows. Raises Damaged for one it cannot load just as it is stored."""
    from transformers import AutoModelForCausalLM

    if checkpoint.root is None:
        raise Damaged(f"model `{checkpoint.model.name}` is random: omnic makes those for families of its own only")
    folder = directory(checkpoint, dtype, loaded)
    try:
        loading: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype_of(dtype), local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise Damaged(f"{folder}: transformers cannot load it: {error}") from None
    model, told = loading
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):  # it would go on, with random weights
        if told[what]:
            name = str(sorted(told[what], key=str)[0])
            raise Damaged(f"{folder}: tensor {name} is {what.partition('_')[0]}")
    adapted = Adapted(model)
    loaded(adapted.weight_bytes, adapted.weight_bytes)
    return adapted


class Adapted:
    """A model of transformers with one growing cache a slot. Satisfies `language.LanguageModel`."""

    def __init__(self, model: Any) -> None:
        self._model, self._config = model, model.config.get_text_config()
        self._caches: list[Any] = []
        # transformers 5.24 renamed it, and the old name warns
        self._cache = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self.vocabulary: int = self._config.vocab_size
        self.weight_bytes: int = sum(p.nbytes for p in model.parameters())  # tied weights are one parameter

    def kv_bytes(self, slots: int, context: int) -> int:
        """The most that the caches grow to; transformers does not reserve it."""
        c = self._config
        heads = getattr(c, "num_key_value_heads", None) or c.num_attention_heads
        dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
        element: int = self._model.dtype.itemsize
        return int(2 * c.num_hidden_layers * heads * dim * element * slots * context)

    def allocate(self, slots: int, context: int) -> None:
        self._caches = [None] * slots

    def forward(self, spans: Sequence[Span]) -> Tensor:
        from transformers import DynamicCache

        logits = []
        for span in spans:
            if span.start == 0:
                self._caches[span.slot] = DynamicCache(config=self._config)
            output = self._model(
                input_ids=torch.tensor([span.tokens]),
                use_cache=True,
                logits_to_keep=1,
                **{self._cache: self._caches[span.slot]},
            )
            if span.logits:
                logits.append(output.logits[0, -1].float())
        return torch.stack(logits) if logits else torch.empty(0, self.vocabulary)
