"""Checkpoints that make no sense: whatever is in their files, what comes of it is a model or a CatalogError."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnic.catalog.part import CatalogError
from omnic.catalog.resolve import ModelSource, resolve
from tests.catalog.checkpoints import LLAMA_METADATA, LLAMA_TENSORS, TINY, gguf, write_checkpoint

SLOW = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD: list[Any] = [
    None, True, 0, -1, 3, 1.5, 1e308, float("nan"), float("inf"), 2**63, "x", "", [], [1, 2], ["x"], [[]], {}, {"a": 1},
    {"rope_type": "llama3"}, {"rope_type": []}, {"rope_type": "linear", "factor": float("nan")},
]  # fmt: skip
CONFIG = [*TINY, "rms_norm_eps", "rope_theta", "rope_scaling", "rope_parameters", "eos_token_id", "head_dim",
          "layer_types", "quantization_config", "partial_rotary_factor", "hidden_act"]  # fmt: skip
GENERATION = ["eos_token_id", "temperature", "top_p", "top_k", "repetition_penalty", "do_sample"]
HEADER = gguf(LLAMA_METADATA, LLAMA_TENSORS)
DEEP = ["[" * 100_000, '{"a":' * 50_000]


def looked_up(folder: Path, name: str) -> None:
    with suppress(CatalogError):
        resolve(ModelSource("path", name, ()), folder)


@SLOW
@given(st.dictionaries(st.sampled_from(CONFIG), st.sampled_from(ODD), max_size=3))
def test_numbers_of_a_config(tmp_path: Path, changed: dict[str, Any]) -> None:
    write_checkpoint(tmp_path / "m")
    (tmp_path / "m/config.json").write_text(json.dumps(TINY | changed))
    looked_up(tmp_path, "m")


@SLOW
@given(st.dictionaries(st.sampled_from(GENERATION), st.sampled_from(ODD), max_size=2))
def test_numbers_of_a_generation_config(tmp_path: Path, changed: dict[str, Any]) -> None:
    write_checkpoint(tmp_path / "m")
    (tmp_path / "m/generation_config.json").write_text(json.dumps(changed))
    looked_up(tmp_path, "m")


@SLOW
@given(st.sampled_from(LLAMA_METADATA), st.sampled_from([0, 3, 2**31, 1.5, "x", "", True, [1, 2], ["a"]]))
def test_metadata_of_gguf(tmp_path: Path, entry: tuple[str, Any], value: Any) -> None:
    changed = [(key, value if key == entry[0] else own) for key, own in LLAMA_METADATA]
    (tmp_path / "m.gguf").write_bytes(gguf(changed, LLAMA_TENSORS))
    looked_up(tmp_path, "m.gguf")


@SLOW
@given(st.lists(st.tuples(st.integers(0, 1500), st.integers(0, 255)), min_size=1, max_size=4))
def test_bytes_of_a_gguf_header(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    data = bytearray(HEADER)
    for at, value in flips:
        data[at] = value
    (tmp_path / "m.gguf").write_bytes(data)
    looked_up(tmp_path, "m.gguf")


@pytest.mark.parametrize("text", DEEP, ids=["list", "object"])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "model.safetensors.index.json"])
def test_json_beyond_any_depth(tmp_path: Path, file: str, text: str) -> None:
    write_checkpoint(tmp_path / "m")
    (tmp_path / "m" / file).write_text(text)
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("path", "m", ()), tmp_path)
    assert error.value.id == "bad-checkpoint"


@pytest.mark.parametrize("file", [5, ["x"], "../outside.safetensors", "/etc/hosts", "a\0b"])
def test_an_index_names_files_beside_it(tmp_path: Path, file: Any) -> None:
    write_checkpoint(tmp_path / "m", shards=2)
    (tmp_path / "m/model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(CatalogError, match=r"model\.safetensors\.index\.json|lacks"):
        resolve(ModelSource("path", "m", ()), tmp_path)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("num_hidden_layers", 10**9, "`num_hidden_layers` is 1000000000"),
        ("vocab_size", 10**12, "`vocab_size` is 1000000000000"),
        ("rope_theta", -5, "`rope_theta` is -5, not a positive number"),
        ("rms_norm_eps", 0, "`rms_norm_eps` is 0, not a positive number"),
    ],
)
def test_options_of_random_weights_that_no_model_has(option: str, value: int, message: str) -> None:
    with pytest.raises(CatalogError) as error:
        resolve(ModelSource("random", "llama", ((option, value),)), Path())
    assert message in error.value.message
