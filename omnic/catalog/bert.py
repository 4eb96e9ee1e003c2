"""bert: sentence encoders (all-MiniLM-L6-v2): text to token states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from omnic.catalog.part import EACH, CatalogError, Cost, Key, Model, Part, Port, WeightGroup
from omnic.catalog.safetensors import Tensor
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import parse

_PROCESS_BYTES = 60 << 20  # transformers' encoder and tokenizer; measured
_WIDTHS = (("fp32", 4), ("bf16", 2))


def from_checkpoint(config: Mapping[str, Any], tensors: Sequence[Tensor], where: str) -> Model:
    """The encoder of a directory. Raises CatalogError for one that computes something else."""
    width, longest = int(config["hidden_size"]), int(config["max_position_embeddings"])
    if config.get("position_embedding_type", "absolute") != "absolute" or config.get("is_decoder"):
        raise CatalogError(f"{where}: omnic runs plain BERT encoders only", id="unknown-family")
    elements = sum(
        prod(t.shape) for t in tensors if not t.name.startswith("pooler.") and t.dtype.startswith(("F", "B"))
    )
    hidden, origin = int(config["intermediate_size"]), f"{where}/config.json"
    costs = tuple(
        (
            name,
            Cost(
                weights=(WeightGroup("encoder", elements * size),),
                activation_bytes=parse(f"{longest} * {(8 * width + 2 * hidden) * 4}"),
                process_bytes=_PROCESS_BYTES,
            ),
        )
        for name, size in _WIDTHS
    )
    encode = Part(
        "encode",
        "transform",
        inputs=(Port("text", Type("text"), streams=EACH), Port("negative", Type("text"), required=False)),
        outputs=(Port("embeds", Type("embeds", (width,)), streams=EACH, origin=origin, follows="text"),),
        keys=(
            Key(
                "keep", Type("int"), None, Range(2, longest),
                "tokens of a text that are read, the rest left out; if not set, a text that is too long is refused",
            ),
        ),
        cost=costs[0][1],
        costs=costs,
        doc="text to token states",
    )  # fmt: skip
    return Model("bert", "safetensors", {"encode": encode}, dict(config), origin=origin)
