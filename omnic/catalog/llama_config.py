"""The numbers of a Llama, Qwen2 or Qwen3 model: what its config.json says, what it leaves out, what cannot run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omnic.catalog.config import bad_checkpoint, count, flag, object_, positive, token_ids
from omnic.catalog.part import CatalogError

_COMMON: dict[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "attention_bias": False, "head_dim": None,
    "rope_theta": 10000.0, "rope_scaling": None, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
_QWEN: dict[str, Any] = _COMMON | {
    "vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "max_position_embeddings": 32768,
    "use_sliding_window": False,
}  # fmt: skip

DEFAULTS: dict[str, dict[str, Any]] = {
    # what config.json leaves out, by model type: the defaults of transformers' config classes
    "llama": _COMMON | {
        "vocab_size": 32000, "intermediate_size": 11008, "num_key_value_heads": None, "max_position_embeddings": 2048,
        "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2,
    },
    "qwen2": _QWEN,
    "qwen3": _QWEN | {"head_dim": 128},
}  # fmt: skip
_FIXED = {"qwen2": {"attention_bias": True}}  # no option there: q, k and v always have one

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def config_of(model_type: str, raw: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The numbers of a config.json with what it leaves out filled in. Raises CatalogError: `bad-checkpoint` for what
    makes no sense, `not-supported-yet` for what cannot run exactly."""
    given = {k: v for k, v in raw.items() if k in DEFAULTS[model_type]}
    full = DEFAULTS[model_type] | given | _FIXED.get(model_type, {})
    rope = object_(raw, "rope_parameters", where)
    heads, hidden = count(full, "num_attention_heads", where), count(full, "hidden_size", where)
    config: dict[str, Any] = {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": count(full, "intermediate_size", where),
        "num_hidden_layers": count(full, "num_hidden_layers", where),
        "num_attention_heads": heads,
        "num_key_value_heads": count(full, "num_key_value_heads", where, heads),
        "head_dim": count(full, "head_dim", where, hidden // heads),
        "vocab_size": count(full, "vocab_size", where),
        "max_position_embeddings": count(full, "max_position_embeddings", where),
        "rms_norm_eps": positive(full, "rms_norm_eps", where),
        "rope_theta": positive(full | rope, "rope_theta", where),
        "rope_scaling": _rope_scaling(rope or object_(full, "rope_scaling", where), where),
        "tie_word_embeddings": flag(full, "tie_word_embeddings", where),
        "attention_bias": flag(full, "attention_bias", where),
        "attention_output_bias": flag(full, "attention_bias", where) and model_type != "qwen2",
        "mlp_bias": flag(full, "mlp_bias", where),
        "qk_norm": model_type == "qwen3",
        "bos_token_id": next(iter(token_ids(full, "bos_token_id", where)), None),
        "eos_token_id": token_ids(full, "eos_token_id", where),
    }
    if heads % config["num_key_value_heads"] or config["head_dim"] % 2:
        raise bad_checkpoint(
            where, f"{heads} heads, {config['num_key_value_heads']} KV heads of {config['head_dim']} do not fit"
        )
    for why in _cannot_run(full, raw, where):
        raise CatalogError(f"{where}: omnic cannot run {why} yet", id="not-supported-yet")
    return config


def _rope_scaling(rope: Mapping[str, Any], where: str) -> dict[str, Any] | None:
    """None, or the numbers of `linear` or `llama3` scaling."""
    kind = rope.get("rope_type", rope.get("type", "default"))
    needs = {"default": (), "linear": ("factor",), "llama3": _LLAMA3}.get(kind) if isinstance(kind, str) else None
    if needs is None:
        raise CatalogError(f"{where}: omnic cannot run rope type `{kind}` yet", id="not-supported-yet")
    if missing := [name for name in needs if name not in rope]:
        raise bad_checkpoint(where, f"rope type `{kind}` needs `{missing[0]}`")
    for name in needs:
        positive(rope, name, where)
    return {"rope_type": kind} | {name: rope[name] for name in needs} if needs else None


def _cannot_run(full: Mapping[str, Any], raw: Mapping[str, Any], where: str) -> Iterator[str]:
    if full["hidden_act"] != "silu":
        yield f"activation `{full['hidden_act']}`"
    if any(r.get("partial_rotary_factor") not in (None, 1) for r in (raw, object_(raw, "rope_parameters", where))):
        yield "partial rotary embeddings"
    layers = raw.get("layer_types")
    if full.get("use_sliding_window") or (isinstance(layers, list) and "sliding_attention" in layers):
        yield "sliding window attention"
    if quantisation := object_(raw, "quantization_config", where):
        yield f"checkpoints quantised with {quantisation.get('quant_method', 'an unknown method')}"
    if raw.get("pretraining_tp", 1) != 1:
        yield "`pretraining_tp` other than 1"
