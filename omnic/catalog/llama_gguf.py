"""Llama, Qwen2 and Qwen3 in GGUF files: their metadata and tensor names as those of a checkpoint."""

from __future__ import annotations

import struct
from typing import Any

from omnic.catalog.config import bad_checkpoint
from omnic.catalog.decoder import model_of
from omnic.catalog.gguf import Header
from omnic.catalog.llama import checked
from omnic.catalog.llama_config import DEFAULTS, config_of
from omnic.catalog.part import CatalogError, Model
from omnic.catalog.safetensors import Tensor

_GGUF_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
}  # fmt: skip
_GGUF_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def from_gguf(header: Header, where: str) -> Model:
    """The model of a GGUF header. Its tensors are dequantised when loaded, so bytes are those of full elements."""
    meta = header.metadata
    kind = meta.get("general.architecture")
    if kind not in DEFAULTS:
        raise CatalogError(f"{where}: omnic does not know architecture `{kind}`", id="unknown-family")
    if meta.get(f"{kind}.expert_count"):
        raise CatalogError(f"{where}: omnic cannot run mixtures of experts yet", id="not-supported-yet")
    tensors = tuple(Tensor(_from_gguf_name(t.name, where), "F32", t.shape) for t in header.tensors)
    names = {t.name: t for t in tensors}
    heads, hidden = meta.get(f"{kind}.attention.head_count"), meta.get(f"{kind}.embedding_length")
    embedding = names.get("model.embed_tokens.weight")
    raw = {
        "hidden_size": hidden,
        "intermediate_size": meta.get(f"{kind}.feed_forward_length"),
        "num_hidden_layers": meta.get(f"{kind}.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": meta.get(f"{kind}.attention.head_count_kv", heads),
        "head_dim": meta.get(f"{kind}.attention.key_length"),
        "vocab_size": embedding.shape[0] if embedding else meta.get(f"{kind}.vocab_size"),
        "max_position_embeddings": meta.get(f"{kind}.context_length"),
        "rms_norm_eps": _short(meta.get(f"{kind}.attention.layer_norm_rms_epsilon", 1e-6)),
        "rope_theta": _short(meta.get(f"{kind}.rope.freq_base", 10000.0)),
        "tie_word_embeddings": "lm_head.weight" not in names,
        "attention_bias": "model.layers.0.self_attn.q_proj.bias" in names,
        "bos_token_id": meta.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": [
            meta[k] for k in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id") if meta.get(k) is not None
        ],
    }
    for name, value in raw.items():
        if value is None and name not in ("bos_token_id", "head_dim"):
            raise bad_checkpoint(where, f"its header does not give `{name}`")
    scaling = meta.get(f"{kind}.rope.scaling.type", "none")
    if scaling == "linear":
        raw["rope_scaling"] = {"rope_type": "linear", "factor": meta.get(f"{kind}.rope.scaling.factor")}
    elif scaling != "none":
        raw["rope_scaling"] = {"rope_type": scaling}
    config = config_of(kind, raw, where)
    config["attention_output_bias"] = "model.layers.0.self_attn.o_proj.bias" in names
    sampling = {"temperature": "temp", "top_p": "top_p", "top_k": "top_k"}
    generation = {n: meta.get(f"general.sampling.{k}") for n, k in sampling.items()}
    return model_of(kind, "gguf", config, checked(config, tensors, where), generation, where)


def _from_gguf_name(name: str, where: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    stem, _, suffix = name.rpartition(".")
    if stem == "rope_freqs":
        raise CatalogError(f"{where}: omnic cannot run the rope factors in this file yet", id="not-supported-yet")
    if stem in _GGUF_TOP:
        return f"{_GGUF_TOP[stem]}.{suffix}"
    block, _, inner = stem.removeprefix("blk.").partition(".")
    return f"model.layers.{block}.{_GGUF_LAYER.get(inner, inner)}.{suffix}"


def _short(value: Any) -> Any:
    """The shortest decimal that is the same float32: 9.999999747378752e-06 -> 1e-05; what is no float as it is."""
    if not isinstance(value, float):
        return value
    packed = struct.pack("<f", value)
    shortest = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next((v for v in shortest if struct.pack("<f", v) == packed), value)
