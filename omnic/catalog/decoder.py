"""What every decoder-only language model has: a part that generates, and what that costs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from omnic.catalog.part import Cost, Model, Part, Port, WeightGroup
from omnic.catalog.safetensors import Tensor
from omnic.catalog.sampling import sampling_keys
from omnic.contract.types import Type
from omnic.expr import parse

STORED = ("F64", "F32", "F16", "BF16")  # dtypes of a checkpoint's tensors
_ELEMENT_BYTES = {"bf16": 2, "fp32": 4}  # by `precision`, as held
_LIBRARY_BYTES = 275 << 20  # torch and transformers once a tokenizer is loaded; measured on a CPU
_BYTES_PER_WORD = 950  # of the vocabulary, in a loaded tokenizer; measured at 300, 49 152 and 151 936 words
_SCRATCH_BYTES = 4 << 20  # what kernels keep for themselves


def model_of(
    family: str,
    format: str,
    config: dict[str, Any],
    loaded: Iterable[Tensor],
    generation: Mapping[str, Any],
    where: str,
    generation_where: str | None = None,
) -> Model:
    """The model of a config with the numbers that `_cost` asks for, and of the tensors that will be loaded. Numbers of
    a generation config were read at `generation_where`, all others at `where`."""
    loaded = tuple(loaded)
    costs = tuple((precision, _cost(config, loaded, size)) for precision, size in _ELEMENT_BYTES.items())
    text = Port("text", Type("text"), streams=("token", "word", "clause", "sentence", "whole"))
    messages = Port("messages", Type("chat", (Type("text"),)))
    generate = Part(
        "generate",
        "generate",
        inputs=(messages,),
        outputs=(text,),
        keys=sampling_keys(config["max_position_embeddings"], generation, generation_where or where),
        cost=costs[0][1],
        costs=costs,
        doc="answers a conversation in text",
        max_context=config["max_position_embeddings"],
    )
    return Model(family, format, {"generate": generate}, config, origin=where, digest=digest(loaded))


def digest(tensors: Iterable[Tensor]) -> str:
    """SHA-256 of the names, dtypes and shapes of what is loaded, order aside."""
    lines = sorted(f"{t.name} {t.dtype} {list(t.shape)}\n" for t in tensors)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _cost(config: Mapping[str, Any], loaded: tuple[Tensor, ...], size: int) -> Cost:
    """What it takes to hold and run the model with elements of `size` bytes.

    Weights are the loaded tensors, all in one dtype. A token's KV is one key and one value a layer. Activations are
    what is alive at once in one layer's forward over `tokens` rows (residual, norms, q, k and v before and after
    rotation, gate, up and their product, each about twice, and a row of the attention mask over `context`), plus fp32
    logits of `batch` rows and what sorting them for top-p takes. Attention is computed in tiles, without its scores.
    """
    groups: dict[str, int] = {"embedding": 0, "layers": 0, "head": 0}
    for tensor in loaded:
        group = "layers" if ".layers." in tensor.name else "embedding" if "embed" in tensor.name else "head"
        groups[group] += tensor.elements * size
    hidden, inner, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, layers = config["num_attention_heads"], config["num_hidden_layers"]
    q, kv = heads * dim, config["num_key_value_heads"] * dim
    row = 2 * size * (3 * hidden + 2 * (q + 2 * kv) + 3 * inner)
    rows = f"{_SCRATCH_BYTES} + tokens * ({row} + context * {size}) + batch * {24 * config['vocab_size']}"
    matmuls = 2 * sum(t.elements for t in loaded if "embed" not in t.name and len(t.shape) == 2)
    head = 2 * config["vocab_size"] * hidden if config["tie_word_embeddings"] else 0
    return Cost(
        weights=tuple(WeightGroup(name, total) for name, total in groups.items()),
        kv_bytes_per_token=2 * layers * kv * size,
        activation_bytes=parse(rows),
        flops_per_token=parse(f"{matmuls + head} + context * {4 * layers * q}"),
        process_bytes=_LIBRARY_BYTES + _BYTES_PER_WORD * config["vocab_size"],
    )
