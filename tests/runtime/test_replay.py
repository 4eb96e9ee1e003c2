"""Calls of modules as graphs by their shapes. On a CPU a graph is a call of what it would record; a GPU records it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.carried import Carried
from omnic.runtime.graphs import CaptureFailed
from omnic.runtime.replay import Replay

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
META = torch.device("meta")  # a device that is not the host, on every machine


class Module(nn.Module):
    """Turns what it is given by a table that it makes on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor, *, scale: float = 1.0, beside: list[Tensor] | None = None) -> dict[str, Any]:
        self.calls += 1
        table = torch.arange(x.shape[-1], dtype=torch.float32).cos().to(x.device)
        made = x * table * torch.tensor(scale, device=x.device)
        return {"made": made if beside is None else made + beside.pop(), "scale": scale}


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def rows(count: int, width: int = 4, value: float = 1.0) -> Tensor:
    return torch.full((count, width), value, device=DEVICE)


def table(width: int = 4) -> Tensor:
    return torch.arange(width, dtype=torch.float32, device=DEVICE).cos()


def learnt(module: Module, *calls: Any) -> Replay:
    replay = Replay({"module": module}, DEVICE)
    with replay.learning():
        for call in calls:
            call()
    return replay


def test_a_call_of_shapes_that_were_learnt_is_a_replay_of_what_is_given_now() -> None:
    module = Module()
    replay = learnt(module, lambda: module(rows(2)), lambda: module(rows(3)))
    for value in (1.0, 2.0, 1.0):
        torch.testing.assert_close(module(rows(2, value=value))["made"], value * table().expand(2, -1))
    assert module(rows(3))["made"].shape == (3, 4)
    assert replay.stats() | {"graph_bytes": 0.0} == {
        "graphs": 2.0, "graph_replays": 4.0 + 2.0, "graph_bytes": 0.0, "uncaptured": 0.0, "capture_failures": 0.0,
    }  # fmt: skip  # what is learnt is replayed for who called


def test_what_was_given_is_not_overwritten_by_the_next() -> None:
    module = Module()
    learnt(module, lambda: module(rows(2)))
    first = module(rows(2))["made"]
    module(rows(2, value=7.0))
    torch.testing.assert_close(first, table().expand(2, -1))


def test_other_shapes_and_other_arguments_run_as_they_are_and_are_counted() -> None:
    module = Module()
    replay = learnt(module, lambda: module(rows(2)))
    assert module(rows(5))["made"].shape == (5, 4)
    torch.testing.assert_close(module(rows(2), scale=3.0)["made"], 3 * table().expand(2, -1))
    assert (replay.uncaptured, replay.graphs.captures) == (2, 1)


def test_a_list_that_is_used_up_is_there_again_at_each_replay() -> None:
    module = Module()
    learnt(module, lambda: module(rows(2), beside=[rows(2)]))
    for value in (1.0, 2.0):
        found = module(rows(2), beside=[rows(2, value=value)])["made"]
        torch.testing.assert_close(found, table().expand(2, -1) + value)


class Looks(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
def test_a_module_that_looks_at_the_device_runs_as_it_is_which_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    module = Looks()
    replay = Replay({"looks": module}, DEVICE)
    with caplog.at_level(logging.WARNING), replay.learning():
        module(rows(2))
        module(rows(3))
    assert module(rows(2)).tolist() == [[2.0] * 4] * 2
    assert [r.getMessage() for r in caplog.records] == [
        "looks(2x4) runs without a graph: it looks at numbers of the device to decide what to do"
    ]
    assert (replay.failures, replay.uncaptured, replay.graphs.captures) == (2, 1, 0)


def meta(body: Any) -> Carried:
    """What `body` carries to the device in two runs."""
    carried = Carried(META)
    for _ in range(2):
        with carried.running():
            body()
    return carried


def test_tables_lists_and_indices_from_the_host_are_carried_once() -> None:
    x = torch.ones(3, 4, device=META)

    def body() -> None:
        assert (x * torch.arange(4.0).to(META)).device == META
        assert (x + torch.tensor([1.0, 2, 3, 4], device="meta")).shape == (3, 4)
        assert x[:, torch.tensor([0, 2])].shape == (3, 2)
        x[0] = torch.zeros(4)
        assert x.new_tensor([1.0, 2]).device == META
        assert (x * torch.tensor(2.0)).device == META  # a number goes along with the launch

    assert [tuple(host.shape) for host, _ in meta(body)._kept] == [(4,), (4,), (2,), (4,), (2,)]


def test_what_changes_from_run_to_run_cannot_be_a_constant() -> None:
    with pytest.raises(CaptureFailed, match="not the same each time"):
        meta(lambda: torch.rand(4).to(META))


@pytest.mark.parametrize(
    "look",
    [lambda x: x.sum().item(), lambda x: bool(x.all()), lambda x: x.tolist(), lambda x: torch.ones(3, 4).copy_(x)],
)
def test_what_looks_at_the_device_is_refused(look: Any) -> None:
    x = torch.ones(3, 4, device=META)
    with pytest.raises(CaptureFailed, match="looks at numbers"):
        meta(lambda: look(x))
