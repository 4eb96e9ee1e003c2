"""Text encoders that several families share, and the stage around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.components import Components
from omnic.runtime.diffusion import Ask, Embeds
from omnic.runtime.modules import held
from omnic.runtime.prompts import clip_ids, padded, within

Encoded = dict[str, Tensor]
"""What an encoder makes of a text: tensors by name, each [1, …]."""


class TextEncoder:
    """A family's encoder as a stage. Satisfies `diffusion.Transform`.

    `encode(text, field)` raises RequestError that names the field of the request. `nothing` is what a request that
    gives no negative prompt is kept away from; with None, nothing is encoded for it.
    """

    def __init__(self, encode: Callable[[str, str], Encoded], nothing: str | None = "") -> None:
        self.encode, self._nothing = encode, nothing
        self._of_nothing: Encoded | None = None  # the same for all requests, so it is made once

    def run(self, ask: Ask) -> Mapping[str, Any]:
        prompt = self.encode(ask.inputs["text"], "prompt")
        negative: str | None = ask.inputs.get("negative")
        if negative is not None:
            return {"embeds": Embeds(prompt, self.encode(negative, "negative_prompt"))}
        if self._of_nothing is None and self._nothing is not None:
            self._of_nothing = self.encode(self._nothing, "negative_prompt")
        return {"embeds": Embeds(prompt, self._of_nothing)}


class Clip:
    """A text model of CLIP, with or without its projection."""

    def __init__(self, components: Components, name: str = "text_encoder", tokenizer: str = "tokenizer") -> None:
        config = components.config(name)
        self._model = components.module(name, prefixes=("text_model.", ""))
        self._tokenizer = components.tokenizer(tokenizer, int(config["vocab_size"]))
        self._longest = int(config["max_position_embeddings"])

    def __call__(self, text: str, field: str, *, cut: bool) -> tuple[Tensor, Tensor]:
        """States of the last layer but one [1, tokens, width], and the pooled text [1, width], projected where the
        model has a projection. `cut` as in `prompts.clip_ids`."""
        ids = clip_ids(self._tokenizer, text, self._longest, field, cut=cut)
        found: Any = self._model(input_ids=ids, output_hidden_states=True)
        pooled = found.text_embeds if "text_embeds" in found else found.pooler_output
        return found.hidden_states[-2], pooled


class T5:
    """The encoder half of T5, read whole: padding too, up to `tokens`, as the models beside it were trained."""

    def __init__(self, components: Components, name: str, tokenizer: str, tokens: int) -> None:
        config = components.config(name)
        self._model = components.module(name)
        self._tokenizer = components.tokenizer(tokenizer, int(config["vocab_size"]))
        self._tokens, self.width = tokens, int(config["d_model"])

    def __call__(self, text: str, field: str) -> Tensor:
        """[1, tokens, width]. Raises RequestError for a text that is longer."""
        ids, _ = padded(self._tokenizer, text, self._tokens, field)
        states: Tensor = self._model(input_ids=ids)[0]
        return states

    def alone(self, text: str, field: str) -> Tensor:
        """[1, tokens of the text, width]: what padding that is masked would leave the same. Raises as above."""
        ids = within(self._tokenizer(text)["input_ids"], self._tokens, text, field)
        if not ids.shape[1]:
            return torch.zeros(1, 0, self.width, device=held(self._model).device)
        states: Tensor = self._model(input_ids=ids)[0]
        return states


class Layers:
    """A decoder-only language model as an encoder: the states after some of its layers. Layers beyond the last of
    those are not built, and their weights are not read."""

    def __init__(
        self,
        components: Components,
        kind: str,
        layers: Sequence[int],
        *,
        name: str = "text_encoder",
        config: Mapping[str, Any] | None = None,
        prefixes: tuple[str, ...] = ("model.", ""),
    ) -> None:
        """`kind` is the class of transformers without a head, `config` its config where the component's own is of
        something larger. `layers` count from 1; 0 are the embeddings."""
        whole = dict(components.config(name) if config is None else config)
        whole["num_hidden_layers"] = max(layers)
        if "layer_types" in whole:
            whole["layer_types"] = list(whole["layer_types"])[: max(layers)]
        self._model: Any = components.module(name, kind=kind, config=whole, prefixes=prefixes, skip=("norm.",))
        self._model.norm = torch.nn.Identity()  # it comes after the last layer, and belongs to no other
        self._layers = layers

    def __call__(self, ids: Tensor, mask: Tensor) -> list[Tensor]:
        """ids, mask: [1, tokens] -> states [1, tokens, width] after each of `layers`."""
        found = self._model(input_ids=ids, attention_mask=mask, output_hidden_states=True, use_cache=False)
        return [found.hidden_states[layer] for layer in self._layers]
