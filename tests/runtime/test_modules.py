"""Modules that are built without memory and filled with weights where they will stay."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.home import Home
from omnic.runtime.modules import filled
from omnic.runtime.weights import Damaged


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.BatchNorm1d(4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("table", torch.arange(6.0), persistent=False)


class Held:
    """Satisfies `tensors.Source`."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = dict(tensors)
        self.read_: list[str] = []

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def read(self, name: str, into: Tensor) -> None:
        self.read_.append(name)
        into.copy_(self.tensors[name])


@pytest.fixture
def source() -> Held:
    torch.manual_seed(0)
    state = {name: torch.rand(t.shape) if t.is_floating_point() else t + 3 for name, t in Net().state_dict().items()}
    return Held(state)


def test_every_saved_tensor_is_read_once_and_tied_ones_stay_tied(source: Held) -> None:
    steps: list[tuple[int, int]] = []
    found = filled(Net, source, Home("float32"), lambda done, total: steps.append((done, total)))
    assert torch.equal(found.get_parameter("embed.weight"), source.tensors["embed.weight"])
    assert found.get_parameter("out.weight").data_ptr() == found.get_parameter("embed.weight").data_ptr()
    assert source.read_.count("out.weight") + source.read_.count("embed.weight") == 1
    assert torch.equal(found.get_buffer("norm.running_var"), source.tensors["norm.running_var"])
    assert steps[-1][0] <= steps[-1][1]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


def test_numbers_are_held_in_the_dtype_asked_for_and_counts_are_not(source: Held) -> None:
    found = filled(Net, source, Home("bfloat16"), lambda done, total: None)
    assert found.get_parameter("norm.weight").dtype == torch.bfloat16
    assert found.get_buffer("norm.num_batches_tracked").dtype == torch.int64
    assert int(found.get_buffer("norm.num_batches_tracked")) == 3


def test_what_is_computed_and_not_saved_is_there(source: Held) -> None:
    found = filled(Net, source, Home("bfloat16"), lambda done, total: None)
    assert torch.equal(found.get_buffer("table"), torch.arange(6.0))


def test_it_only_computes(source: Held) -> None:
    found = filled(Net, source, Home("float32"), lambda done, total: None)
    assert not found.training
    assert not any(parameter.requires_grad for parameter in found.parameters())
    assert not any(tensor.is_meta for tensor in (*found.parameters(), *found.buffers()))


def test_a_tensor_that_is_not_there_is_named(source: Held) -> None:
    del source.tensors["norm.bias"]
    with pytest.raises(Damaged, match=r"the checkpoint lacks `norm\.bias`"):
        filled(Net, source, Home("float32"), lambda done, total: None)


def test_parts_that_are_skipped_are_not_asked_for(source: Held) -> None:
    del source.tensors["norm.bias"]
    found = filled(Net, source, Home("float32"), lambda done, total: None, skip=("norm.",))
    assert not any(name.startswith("norm.") for name in source.read_)
    assert torch.equal(found.get_parameter("embed.weight"), source.tensors["embed.weight"])
