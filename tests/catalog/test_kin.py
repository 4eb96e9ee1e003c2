"""Decoders of other families: what the catalog reads of them, and what it refuses."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from omnic.catalog.resolve import CatalogError, ModelSource, resolve
from tests.catalog.checkpoints import TINY, shapes, write_checkpoint, write_safetensors

MISTRAL = TINY | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 64}


def write(folder: Path, **change: object) -> Path:
    """A Mistral has the tensors of a Llama."""
    return write_checkpoint(folder, MISTRAL | change, tensors=shapes(TINY))


def test_a_family_of_its_own_runs_by_transformers_forward(tmp_path: Path) -> None:
    model = resolve(ModelSource("path", str(write(tmp_path / "tiny"))), tmp_path)
    assert (model.family, model.config["model_type"]) == ("transformers", "mistral")
    cost = model.parts["generate"].cost
    assert cost.weight_bytes == 2 * sum(prod(shape) for shape in shapes(TINY).values())
    assert cost.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2  # keys and values, layers, heads, head_dim, bytes


def test_its_architecture_alone_names_it_too(tmp_path: Path) -> None:
    model = resolve(ModelSource("path", str(write(tmp_path / "tiny", model_type=None))), tmp_path)
    assert model.config["model_type"] == "mistral"


def test_a_tied_head_that_is_stored_all_the_same_counts_once(tmp_path: Path) -> None:
    model = resolve(ModelSource("path", str(write(tmp_path / "tiny", tie_word_embeddings=True))), tmp_path)
    stored = shapes(TINY)
    head = prod(stored["lm_head.weight"])
    assert model.parts["generate"].cost.weight_bytes == 2 * (sum(map(prod, stored.values())) - head)


@pytest.mark.parametrize(
    ("change", "id", "why"),
    [
        ({"num_key_value_heads": None}, "bad-checkpoint", "`num_key_value_heads` is None, not a positive whole number"),
        ({"quantization_config": {"quant_method": "awq"}}, "not-supported-yet", "checkpoints quantised with awq"),
        ({"tie_word_embeddings": "no"}, "bad-checkpoint", "`tie_word_embeddings` is 'no', neither true nor false"),
        ({"model_type": "mystery"}, "unknown-family", "omnic does not know model type `mystery`"),
    ],
)
def test_what_cannot_be_read_or_run_is_refused(tmp_path: Path, change: dict[str, object], id: str, why: str) -> None:
    folder = write(tmp_path / "tiny", **change)
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("path", str(folder)), tmp_path)
    assert error.value.id == id
    assert why in error.value.message


def test_quantised_tensors_come_later(tmp_path: Path) -> None:
    folder = write(tmp_path / "tiny")
    write_safetensors(folder / "model.safetensors", shapes(TINY), "F8_E4M3")
    with pytest.raises(CatalogError, match="stored as F8_E4M3"):
        resolve(ModelSource("path", str(folder)), tmp_path)
