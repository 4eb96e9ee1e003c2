"""Decoders of other families that run by transformers' own forward, one sequence after the other.

The catalog takes their numbers from config.json, which must state them, and their tensors from the headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omnic.catalog.config import count, flag, object_, token_ids
from omnic.catalog.decoder import STORED, model_of
from omnic.catalog.part import CatalogError, Model
from omnic.catalog.safetensors import Tensor

FAMILY = "transformers"  # of runtime/families


@dataclass(frozen=True, slots=True)
class Kin:
    """A model type: its architecture, and what its config class sets where config.json says nothing."""

    architecture: str
    tied: bool
    head_dim: int | None = None  # None: the hidden size shared by the heads


KIN: dict[str, Kin] = {
    "gemma": Kin("GemmaForCausalLM", tied=True, head_dim=256),
    "granite": Kin("GraniteForCausalLM", tied=False),
    "mistral": Kin("MistralForCausalLM", tied=False),
    "olmo2": Kin("Olmo2ForCausalLM", tied=False),
    "smollm3": Kin("SmolLM3ForCausalLM", tied=True),
    "starcoder2": Kin("Starcoder2ForCausalLM", tied=True),
}
_STATED = ("intermediate_size", "num_hidden_layers", "num_key_value_heads", "vocab_size", "max_position_embeddings")


def from_checkpoint(
    model_type: str,
    raw: Mapping[str, Any],
    stored: Iterable[Tensor],
    generation: Mapping[str, Any],
    where: str,
    generation_where: str | None = None,
) -> Model:
    """The model of a config.json, read at `where`, and a generation config, read at `generation_where` (there too if
    None). Raises CatalogError."""
    kin = KIN[model_type]
    if quantised := object_(raw, "quantization_config", where):
        method = quantised.get("quant_method", "an unknown method")
        raise CatalogError(f"{where}: omnic cannot run checkpoints quantised with {method} yet", id="not-supported-yet")
    heads, hidden = count(raw, "num_attention_heads", where), count(raw, "hidden_size", where)
    stop = token_ids(generation, "eos_token_id", generation_where or where) or token_ids(raw, "eos_token_id", where)
    config = {
        "model_type": model_type,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        **{name: count(raw, name, where) for name in _STATED},
        "head_dim": count(raw, "head_dim", where, kin.head_dim or hidden // heads),
        "tie_word_embeddings": flag(raw, "tie_word_embeddings", where, kin.tied),
        "eos_token_id": stop,
    }
    ignored = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    loaded = [t for t in stored if t.name not in ignored and not t.name.endswith("rotary_emb.inv_freq")]
    for tensor in loaded:
        if tensor.dtype not in STORED:
            raise CatalogError(
                f"{where}: omnic cannot load `{tensor.name}` stored as {tensor.dtype} yet", id="not-supported-yet"
            )
    return model_of(FAMILY, "safetensors", config, loaded, generation, where, generation_where)
