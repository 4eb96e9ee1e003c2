"""Graphs: bodies over static buffers. On a CPU they are called; on a GPU they are captured and replayed."""

from __future__ import annotations

import pytest
import torch

from omnic.runtime.graphs import CaptureFailed, Graphs

_DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
    ),
]


@pytest.mark.parametrize("device", _DEVICES)
def test_a_replay_sees_what_the_buffers_hold_now(device: str) -> None:
    graphs = Graphs(torch.device(device))
    given, doubled = torch.zeros(4, device=device), torch.zeros(4, device=device)

    def body() -> None:
        doubled.copy_(given * 2)

    graphs.capture("double", body)
    results = []
    for value in (1.0, 2.0, 1.0):
        given.fill_(value)
        graphs.replay("double")
        results.append(doubled.clone())
    assert [r.tolist() for r in results] == [[2.0] * 4, [4.0] * 4, [2.0] * 4]
    assert (graphs.captures, graphs.replays) == (1, 3)


@pytest.mark.parametrize("device", _DEVICES)
def test_an_unknown_key_is_an_error(device: str) -> None:
    with pytest.raises(KeyError):
        Graphs(torch.device(device)).replay("nothing")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_body_that_waits_for_the_device_is_refused_by_name_and_others_go_on() -> None:
    device = torch.device("cuda")
    graphs = Graphs(device)
    x = torch.ones(4, device=device)

    def sound() -> None:
        x.mul_(1)

    def waits() -> None:
        x.sum().item()

    graphs.capture("sound", sound)
    with pytest.raises(CaptureFailed, match="waits"):
        graphs.capture("waits", waits)
    graphs.replay("sound")
    assert x.tolist() == [1.0] * 4
    assert graphs.captures == 1
