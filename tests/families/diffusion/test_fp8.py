"""Weights in fp8: as many bytes as the catalog says, products as good as fp8 is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from omnic.catalog.resolve import ModelSource, resolve
from omnic.runtime.components import built
from omnic.runtime.families.qwen_image_weights import eight
from omnic.runtime.home import Home
from omnic.runtime.modules import build_empty, filled, in_fp8
from omnic.runtime.product import FP8, Product, quantised
from omnic.runtime.tensors import Seeded


def test_qwen_image_takes_as_many_bytes_as_planned() -> None:
    model = resolve(ModelSource("hf", "Qwen/Qwen-Image"), Path())
    entry = model.config["components"]["transformer"]
    module = build_empty(lambda: built("diffusers", entry["class"], dict(entry["config"])))
    chosen = eight(int(entry["config"]["num_layers"]))
    saved = sum(w.numel() - 4 * len(w) for name, w in module.named_parameters() if chosen(name))
    part = model.parts["denoiser"]
    assert part.cost_as("bf16").weight_bytes - part.cost_as("fp8").weight_bytes == saved > 0


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(64, 32), nn.Linear(64, 32)


def _narrow(name: str) -> bool:
    return name == "narrow.weight"


def test_matrices_are_read_into_fp8_and_counted_so() -> None:
    steps: list[tuple[int, int]] = []
    made = filled(Two, Seeded(0), Home("float8"), lambda done, total: steps.append((done, total)), eight=_narrow)
    again = filled(Two, Seeded(0), Home("bfloat16"), lambda done, total: None)
    in_fp8(again, _narrow)
    for module in (made, again):
        held = module.state_dict()
        assert held["narrow.weight"].dtype == FP8
        assert held["wide.weight"].dtype == held["narrow.bias"].dtype == torch.bfloat16
        assert steps[-1] == (sum(t.nbytes for t in held.values()),) * 2
    first, second = (module.state_dict()["narrow.weight"].view(torch.uint8) for module in (made, again))
    assert first.equal(second)


def test_the_largest_weight_of_an_output_is_the_largest_fp8() -> None:
    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 3, 16)[:, None]
    narrow, scale = quantised(weight)
    assert narrow.float().abs().amax(1).tolist() == [448.0] * 16
    back = narrow.float() * scale[:, None]
    assert float((back - weight).norm(dim=1).div(weight.norm(dim=1)).max()) < 0.04  # half of 2⁻³, on average far less


def test_weights_of_zeros_stay_zeros() -> None:
    narrow, scale = quantised(torch.zeros(4, 16))
    assert not narrow.float().any()
    assert scale.isfinite().all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_product_in_fp8_is_near_the_wide_one() -> None:
    from omnic.runtime.kernels.modulate import quantise

    generator = torch.Generator("cuda").manual_seed(0)
    x, weight = (torch.randn(n, 256, device="cuda", generator=generator).bfloat16() for n in (48, 64))
    bias = torch.randn(64, device="cuda", generator=generator).bfloat16()
    narrow, scale = quantised(weight)
    rows, of_rows = torch.empty_like(x, dtype=FP8), torch.empty(48, device="cuda")
    quantise(x, rows, of_rows)
    found, wanted = Product(narrow, bias, scale)(rows, of_rows), Product(weight, bias)(x)
    assert float((found.float() - wanted.float()).norm() / wanted.float().norm()) < 0.05
