"""Adapters: which files are ones, what they add to, and whether that fits a part."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from omnic.catalog import lora
from omnic.catalog.part import Part
from omnic.catalog.resolve import CatalogError, ModelSource, resolve

SHAPES = {"out.weight": (1, (3, 8)), "blocks.*.to_q.weight": (2, (8, 6)), "out.bias": (1, (3,))}
PART = Part("denoiser", "denoise", (), (), adapts={"transformer": SHAPES, "transformer_2": {}})


def saved(file: Path, *layers: str, rows: int = 3, columns: int = 8, rank: int = 2) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {f"{layer}.lora_A.weight": torch.zeros(rank, columns) for layer in layers}
    save_file(tensors | {f"{layer}.lora_B.weight": torch.zeros(rows, rank) for layer in layers}, file)
    return file


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("neon.safetensors", "a/neon.safetensors"),  # the file itself
        ("neon.safetensors", "a"),  # the only one of a directory
        ("adapter_model.safetensors", "a"),  # as PEFT names it
        ("pytorch_lora_weights.safetensors", "a"),  # as diffusers does
    ],
)
def test_an_adapter_is_known_by_its_tensors(tmp_path: Path, name: str, asked: str) -> None:
    saved(tmp_path / "a" / name, "transformer.out", "transformer.blocks.1.to_q")
    found = resolve(ModelSource("path", asked), tmp_path)
    assert (found.family, found.parts, found.root) == ("lora", {}, str(tmp_path / "a"))
    assert found.adds == {"transformer.out": (3, 2, 8), "transformer.blocks.1.to_q": (3, 2, 8)}
    assert [file.path for file in found.files] == [name]
    assert lora.elements(found) == 2 * 2 * (3 + 8)


def test_what_peft_says_of_it_belongs_to_it(tmp_path: Path) -> None:
    saved(tmp_path / "adapter_model.safetensors", "out")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": 4}))
    found = resolve(ModelSource("path", "."), tmp_path)
    assert [file.path for file in found.files] == ["adapter_model.safetensors", "adapter_config.json"]


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"model.embed.weight": torch.zeros(2)}, "it cannot use `model.embed.weight`"),
        ({"out.lora_A.weight": torch.zeros(2, 8)}, "`out.lora_A.weight` lacks its other half"),
        ({"out.alpha": torch.tensor(1.0)}, "it holds no adapter"),
        ({"a.lora_A.weight": torch.zeros(2, 8), "a.lora_B.weight": torch.zeros(3, 4)}, "`a` adds [3, 4] x [2, 8]"),
        ({"a.lora_A.weight": torch.zeros(2, 8, 1, 1), "a.lora_B.weight": torch.zeros(3, 2, 1, 1)}, "`a` adds"),
        ({"a.lora_A.weight": torch.zeros(2, 8), "a.lora_B.weight": torch.zeros(3, 2),
          "a.lora_magnitude_vector": torch.zeros(3)}, "it cannot use `a.lora_magnitude_vector`"),
    ],
)  # fmt: skip
def test_a_file_of_anything_else_is_refused(tmp_path: Path, tensors: dict[str, torch.Tensor], why: str) -> None:
    save_file(tensors, tmp_path / "neon.safetensors")
    with pytest.raises(CatalogError, match=re.escape(why)) as refused:
        resolve(ModelSource("path", "neon.safetensors"), tmp_path)
    assert refused.value.id == "bad-checkpoint"


def test_two_adapters_in_a_directory_are_not_one(tmp_path: Path) -> None:
    saved(tmp_path / "a.safetensors", "out")
    saved(tmp_path / "b.safetensors", "out")
    with pytest.raises(CatalogError, match="neither config"):
        resolve(ModelSource("path", "."), tmp_path)


@pytest.mark.parametrize(
    ("layers", "rows", "columns", "why"),
    [
        (("out",), 3, 8, None),
        (("transformer.blocks.0.to_q", "base_model.model.blocks.1.to_q"), 8, 6, None),
        (("blocks.0.to_k",), 8, 6, "it adds to `blocks.0.to_k`, which the model does not have"),
        (("out",), 4, 8, "it adds [4, 8] to `out`, which is [3, 8]"),
        (("transformer_2.out",), 3, 8, "it adds to `out`, which the model does not have"),
        (("text_encoder.q",), 3, 8, "it adds to `text_encoder.q`, which the model does not have"),
    ],
)
def test_whether_it_fits_is_known_from_headers(
    tmp_path: Path, layers: tuple[str, ...], rows: int, columns: int, why: str | None
) -> None:
    saved(tmp_path / "neon.safetensors", *layers, rows=rows, columns=columns)
    assert lora.misfit(resolve(ModelSource("path", "neon.safetensors"), tmp_path), PART) == why


def test_a_part_of_unknown_layers_takes_none(tmp_path: Path) -> None:
    saved(tmp_path / "neon.safetensors", "out")
    found = resolve(ModelSource("path", "neon.safetensors"), tmp_path)
    assert lora.misfit(found, Part("denoiser", "denoise", (), ())) == "omnic cannot adapt a `denoiser` of this family"
