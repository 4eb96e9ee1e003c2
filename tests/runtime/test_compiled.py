"""Repeated blocks, compiled once for all lengths: no shape of warm-up is compiled again, and others run as they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from omnic.expr import Size
from omnic.runtime.compiled import Compiled, repeated
from omnic.runtime.diffusion import predict
from omnic.runtime.replay import Replay
from tests.runtime.test_replayed_families import HOME, Made

CHANNELS = 32
EAGER = torch._dynamo.lookup_backend("aot_eager")


class Block(nn.Module):
    """Attention and a layer, as a transformer has them."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.norm, self.qkv = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, 3 * CHANNELS)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (4, -1)).transpose(1, 2).chunk(3, -1)
        found: Tensor = nn.functional.scaled_dot_product_attention(query, key, value)
        return x + found.transpose(1, 2).flatten(2)


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.inference_mode():
        yield


def run(blocks: list[nn.Module], x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def test_sizes_seen_in_warm_up_are_not_compiled_again_also_where_tokens_equal_channels() -> None:
    torch.manual_seed(0)
    blocks: list[nn.Module] = [Block(number) for number in range(3)]
    sizes = [torch.randn(2, tokens, CHANNELS) for tokens in (16, CHANNELS, 48, 24)]
    wanted = [run(blocks, x) for x in sizes]
    compiled = Compiled(blocks, EAGER)
    with compiled.used():
        for x in sizes:
            run(blocks, x)
        made = compiled.compilations
        found = [run(blocks, x) for x in reversed(sizes)]
    assert made == 1
    assert compiled.compilations == made
    for a, b in zip(wanted, reversed(found), strict=True):
        torch.testing.assert_close(a, b)


def test_outside_of_its_use_blocks_run_as_they_are() -> None:
    blocks: list[nn.Module] = [Block(0)]
    compiled = Compiled(blocks, EAGER)
    run(blocks, torch.randn(1, 5, CHANNELS))
    assert compiled.compilations == 0


def test_a_module_that_names_no_repeated_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear"):
        repeated([nn.Linear(1, 1)])


def test_a_family_compiles_in_warm_up_alone_and_shapes_that_it_was_not_told_of_run_as_they_are() -> None:
    made = Made("flux")
    sizes = [Size(64, 32), Size(64, 64), Size(32, 32), Size(96, 64)]
    jobs = [made.job("a red cat", size=size) for size in sizes]
    other = made.job("a red cat", size=Size(48, 32))
    wanted = [predict(made.denoiser.forward, [job]) for job in (*jobs, other)]
    compiled = Compiled(repeated(made.denoiser.modules().values()), EAGER)
    replay = Replay(made.denoiser.modules(), HOME.device, compiled)
    with replay.learning():
        for job in jobs:
            predict(made.denoiser.forward, [job])
    before = compiled.compilations
    found = [predict(made.denoiser.forward, [job]) for job in (*jobs, other)]
    assert 0 < before <= 2 * 2  # kinds of block, and guards of either kind of attention
    assert (compiled.compilations, replay.uncaptured, replay.failures) == (before, 1, 0)
    for (((a,),),), (((b,),),) in zip(wanted, found, strict=True):
        torch.testing.assert_close(a, b)
