"""Sentence encoders of the BERT kind (all-MiniLM-L6-v2), through transformers' own module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.diffusion import Ask, Embeds
from omnic.runtime.errors import RequestError
from omnic.runtime.home import Home
from omnic.runtime.modules import filled
from omnic.runtime.tensors import Loaded, Shards
from omnic.runtime.weights import Checkpoint


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Encoder:
    """Part `encode`. Raises Missing or Damaged."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    (weights,) = checkpoint.files(".safetensors")
    config = AutoConfig.from_pretrained(weights.parent)
    empty: Callable[..., torch.nn.Module] = AutoModel.from_config
    model = filled(lambda: empty(config, add_pooling_layer=False), Shards([weights]), home, loaded)
    return Encoder(model, AutoTokenizer.from_pretrained(weights.parent), int(config.max_position_embeddings))


class Encoder:
    """Text to its token states: `states` [1, tokens, width] and `mask` [1, tokens]. Satisfies `Transform`; of text that
    comes in pieces, each is a text of its own. With the setting `keep`, tokens beyond so many are left out."""

    streams = "text"

    def __init__(self, model: Any, tokenizer: Any, longest: int) -> None:
        self._model, self._tokenizer, self._longest = model, tokenizer, longest

    def run(self, ask: Ask) -> Mapping[str, Any]:
        text = ask.inputs["text"]
        if not text.strip():
            raise RequestError("the text is blank", "prompt")
        keep = ask.settings.get("keep")
        negative = self._encoded(ask.inputs.get("negative") or "", "negative", keep)
        return {"embeds": Embeds(self._encoded(text, "prompt", keep), negative)}

    def begin(self, ask: Ask) -> Callable[[str], Mapping[str, Any]]:
        def push(piece: str) -> Mapping[str, Any]:
            return self.run(replace(ask, inputs={**ask.inputs, "text": piece})) if piece.strip() else {}

        return push

    def _encoded(self, text: str, field: str, keep: int | None = None) -> dict[str, Tensor]:
        batch = self._tokenizer(text, return_tensors="pt", truncation=keep is not None, max_length=keep)
        tokens = batch["input_ids"].shape[1]
        if tokens > self._longest:
            raise RequestError(f"the text is {tokens} tokens long; its encoder takes {self._longest}", field)
        states = self._model(**dict(batch)).last_hidden_state
        return {"states": states, "mask": batch["attention_mask"].to(torch.bool)}
