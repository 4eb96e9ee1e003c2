"""Decoder-only language models of one shape: Llama, Qwen2 and Qwen3.

They differ in biases (Qwen2 has them on q, k and v) and in norms on q and k (Qwen3). What the runtime could not run
exactly is refused, here or in `llama_config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnic.catalog.config import bad_checkpoint, token_ids
from omnic.catalog.decoder import STORED, model_of
from omnic.catalog.llama_config import DEFAULTS, config_of
from omnic.catalog.part import CatalogError, Model
from omnic.catalog.safetensors import Tensor
from omnic.spelling import did_you_mean

_TINY: dict[str, Any] = {
    # what `random(…)` leaves out: a model that any machine loads in a moment
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": None, "head_dim": None, "vocab_size": 512, "max_position_embeddings": 2048,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_LEAST_WORDS = 259  # bytes and marks, of which the tokenizer of a random model is made


# --- tensors ----------------------------------------------------------------------------------------------------------


def tensors_of(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor a checkpoint of this config must have: name to shape. A tied head is no tensor of its own."""
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    q, kv = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (q, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, q),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config["attention_bias"]:
        layer |= {"self_attn.q_proj.bias": (q,), "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.bias": (kv,)}
    if config["attention_output_bias"]:
        layer["self_attn.o_proj.bias"] = (hidden,)
    if config["mlp_bias"]:
        layer |= {"mlp.gate_proj.bias": (inner,), "mlp.up_proj.bias": (inner,), "mlp.down_proj.bias": (hidden,)}
    if config["qk_norm"]:
        layer |= {"self_attn.q_norm.weight": (dim,), "self_attn.k_norm.weight": (dim,)}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def checked(config: Mapping[str, Any], stored: Iterable[Tensor], where: str) -> tuple[Tensor, ...]:
    """The tensors that will be loaded, of those `stored`. Raises CatalogError unless they are just what is needed."""
    found = {t.name: t for t in stored}
    for name, shape in (needed := tensors_of(config)).items():
        if name not in found:
            raise bad_checkpoint(where, f"tensor `{name}` is missing")
        if found[name].shape != shape:
            raise bad_checkpoint(
                where, f"`{name}` is {list(found[name].shape)}; by its config it should be {list(shape)}"
            )
        if found[name].dtype not in STORED:
            raise CatalogError(
                f"{where}: omnic cannot load `{name}` stored as {found[name].dtype} yet", id="not-supported-yet"
            )
    ignored = {"lm_head.weight"} if config["tie_word_embeddings"] else set()
    for name in found.keys() - needed.keys() - ignored:
        if not name.endswith("rotary_emb.inv_freq"):
            raise bad_checkpoint(where, f"tensor `{name}` has no place in family `{config['model_type']}`")
    return tuple(found[name] for name in needed)


# --- models -----------------------------------------------------------------------------------------------------------


def from_checkpoint(
    model_type: str,
    raw: Mapping[str, Any],
    stored: Iterable[Tensor] | None,
    generation: Mapping[str, Any],
    where: str,
    generation_where: str | None = None,
) -> Model:
    """The model of a config.json, read at `where`, and a generation config, read at `generation_where` (there too if
    None). Without `stored` tensors, those that the config implies, in bf16. Raises CatalogError."""
    config = config_of(model_type, raw, where)
    if stop := token_ids(generation, "eos_token_id", generation_where or where):
        config["eos_token_id"] = stop
    if stored is None:
        stored = [Tensor(name, "BF16", shape) for name, shape in tensors_of(config).items()]
    loaded = checked(config, stored, where)
    return model_of(model_type, "safetensors", config, loaded, generation, where, generation_where)


def from_random(model_type: str, options: Mapping[str, Any]) -> Model:
    """Seeded random weights for a tiny config with `options` changed."""
    options = dict(options)
    seed = options.pop("seed", 0)
    known = list(DEFAULTS[model_type])
    for name in options:
        if name not in known:
            raise CatalogError(
                f'`random("{model_type}")` has no option `{name}`',
                help=did_you_mean(name, ["seed", *known]) or f"it has {', '.join(['seed', *known])}",
                id="bad-model-option",
            )
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        raise CatalogError(f"`seed` must be a whole number from 0, not {seed!r}", id="bad-model-option")
    where = f'random("{model_type}")'
    config = config_of(model_type, _TINY | options, where) | {"seed": seed}
    if config["vocab_size"] < _LEAST_WORDS:
        raise CatalogError(
            f"`vocab_size` of random weights must be {_LEAST_WORDS} or more, not {config['vocab_size']}",
            help="bytes and the marks between messages take as many",
            id="bad-model-option",
        )
    stored = [Tensor(name, "BF16", shape) for name, shape in tensors_of(config).items()]
    return model_of(model_type, "random", config, stored, {}, where)
