"""The residual stream and the gate between, against the same in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from omnic.runtime.kernels.gated import gated
from omnic.runtime.kernels.residual_norm import embed, residual_norm


@pytest.mark.parametrize("width", [64, 96, 1500])
def test_what_a_layer_gave_is_added_and_the_sum_is_normed(width: int) -> None:
    torch.manual_seed(0)
    x, delta, gain = torch.randn(3, width), torch.randn(3, width), torch.randn(width)
    total = x.double() + delta.double()
    out = torch.full_like(x, torch.nan)
    residual_norm(x, delta, gain, out, 1e-5)
    torch.testing.assert_close(x.double(), total, rtol=1e-6, atol=1e-6)
    exact = total / (total.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-5, atol=1e-6)


def test_before_the_first_layer_nothing_is_added() -> None:
    x = torch.randn(2, 64)
    before, out = x.clone(), torch.full_like(x, torch.nan)
    residual_norm(x, None, torch.ones(64), out, 0.0)
    assert torch.equal(x, before)
    torch.testing.assert_close(out.square().mean(-1), torch.ones(2))


def test_a_row_starts_from_the_embedding_of_its_sequences_token() -> None:
    embedding, x = torch.randn(50, 40), torch.full((2, 40), torch.nan)
    embed(embedding, torch.tensor([3, 49, 7], dtype=torch.int32), torch.tensor([1, 2], dtype=torch.int32), x)
    assert torch.equal(x, embedding[[49, 7]])


@pytest.mark.parametrize("width", [40, 1500])
def test_the_gate_is_the_first_half(width: int) -> None:
    both = torch.randn(3, 2 * width)
    out = torch.full((3, width), torch.nan)
    gated(both, out)
    gate, up = both.double().chunk(2, 1)
    torch.testing.assert_close(out.double(), functional.silu(gate) * up, rtol=1e-5, atol=1e-6)
