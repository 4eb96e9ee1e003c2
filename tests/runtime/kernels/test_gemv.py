"""One row times a matrix, against the same in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.kernels.gemv import gated_gemv, gemv, tiling_of

EPSILON = 1e-6


def normed(x: Tensor, gain: Tensor) -> Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gain.double()


def close(found: Tensor, exact: Tensor) -> bool:
    return float((found.double() - exact).norm() / exact.norm()) < 1e-6


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("outputs", "columns"), [(40, 96), (3, 64), (130, 1024), (24, 3000)])
def test_a_product_is_the_row_times_the_weight_and_a_bias(outputs: int, columns: int) -> None:
    x, weight, bias = torch.randn(1, columns), torch.randn(outputs, columns), torch.randn(outputs)
    out = torch.full((1, outputs), torch.nan)
    gemv(x, weight, out, bias=bias)
    assert close(out, x.double() @ weight.double().T + bias.double())


def test_with_add_the_product_comes_on_top_of_what_was_there() -> None:
    x, weight, before = torch.randn(1, 96), torch.randn(40, 96), torch.randn(1, 40)
    out = before.clone()
    gemv(x, weight, out, add=True)
    assert close(out, before.double() + x.double() @ weight.double().T)


def test_with_gains_the_row_is_normed_first() -> None:
    x, weight, gain = 9 * torch.randn(1, 96), torch.randn(40, 96), torch.randn(96)
    out = torch.full((1, 40), torch.nan)
    gemv(x, weight, out, gain=gain, epsilon=EPSILON)
    assert close(out, normed(x, gain) @ weight.double().T)


def test_a_gated_product_is_the_silu_of_its_first_half_times_its_second() -> None:
    x, weight, gain, bias = torch.randn(1, 96), torch.randn(44, 96), torch.randn(96), torch.randn(44)
    out = torch.full((1, 22), torch.nan)
    gated_gemv(x, weight, out, gain=gain, epsilon=EPSILON, bias=bias)
    gate, up = (normed(x, gain) @ weight.double().T + bias.double()).chunk(2, 1)
    assert close(out, functional.silu(gate) * up)


@pytest.mark.parametrize("columns", [64, 1000, 1024, 3072, 12288])
def test_a_tiling_gives_each_thread_eight_columns_of_a_row(columns: int) -> None:
    cut = tiling_of(4096, columns)
    assert cut.chunk <= 256 * cut.warps
    assert cut.chunk >= min(columns, 1024)
