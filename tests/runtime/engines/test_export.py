"""Modules as ONNX."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.engines.builder import Settings
from omnic.runtime.engines.calls import Unfit, ranges
from omnic.runtime.engines.export import Exported, export
from omnic.runtime.engines.fake import Reference
from tests.runtime.engines.toys import Toy, call


def exported(module: nn.Module, folder: Path, *rows: int) -> Exported:
    folder.mkdir()
    calls = [call(n) for n in rows]
    return export(module.eval(), calls[0], ranges(calls), folder)


def test_onnx_gives_what_the_module_gives_for_every_length_between(tmp_path: Path) -> None:
    made = exported(Toy(), tmp_path / "a", 2, 9)
    session = Reference().session(Reference().build(made.file, {}, Settings()))
    for rows in (2, 5, 9):
        x = call(rows).tensors[0]
        found = session.run({made.inputs[0]: x})
        torch.testing.assert_close(found[made.outputs[0]], Toy()(x)["rows"], atol=1e-6, rtol=0)


def test_the_same_module_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = (exported(Toy(), tmp_path / name, 2, 9) for name in "ab")
    assert one.file.read_bytes() == two.file.read_bytes()
    assert (one.graph, one.weights) == (two.graph, two.weights)
    assert str(tmp_path).encode() not in one.file.read_bytes()


def test_weights_and_graph_are_told_apart(tmp_path: Path) -> None:
    one, other = exported(Toy(), tmp_path / "a", 2, 9), exported(Toy(seed=1), tmp_path / "b", 2, 9)
    assert one.graph == other.graph
    assert one.weights != other.weights
    fixed = exported(Toy(), tmp_path / "c", 2, 2)
    assert one.graph != fixed.graph
    assert one.weights == fixed.weights


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


class Fixed(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + torch.ones(9, 8) * int(x.shape[0])


@pytest.mark.parametrize("module", [Branching(), Fixed()])
def test_what_cannot_be_exported_is_one_line(module: nn.Module, tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="torch cannot export it: ") as refused:
        exported(module, tmp_path / "a", 2, 9)
    assert "\n" not in str(refused.value)
