"""Step caches: what is left out, against diffusers' own hooks and plain loops; state that no request shares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.stepcache import Blocks, Cacheable, Memory, StepCache, cacheable
from tests.runtime.painting import Emoji, Sketch, emoji, loaded, painted

STEPS = 12


def flux() -> nn.Module:
    from diffusers import FluxTransformer2DModel

    torch.manual_seed(0)
    made: nn.Module = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=2, num_single_layers=3, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    ).eval()  # fmt: skip
    return made


def flux_given(x: Tensor, sigma: float, text: Tensor) -> dict[str, Any]:
    ids = torch.stack([torch.zeros(16), torch.arange(16) // 4, torch.arange(16) % 4], dim=-1)
    return {
        "hidden_states": x, "timestep": torch.tensor([sigma]), "encoder_hidden_states": text,
        "pooled_projections": text.mean(1), "img_ids": ids, "txt_ids": torch.zeros(text.shape[1], 3),
        "return_dict": False,
    }  # fmt: skip


def qwen() -> nn.Module:
    from diffusers import QwenImageTransformer2DModel

    torch.manual_seed(0)
    made: nn.Module = QwenImageTransformer2DModel(
        patch_size=2, in_channels=4, out_channels=1, num_layers=4, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, axes_dims_rope=(4, 4, 8),
    ).eval()  # fmt: skip
    return made


def qwen_given(x: Tensor, sigma: float, text: Tensor) -> dict[str, Any]:
    return {
        "hidden_states": x, "timestep": torch.tensor([sigma]), "encoder_hidden_states": text,
        "img_shapes": [[(1, 4, 4)]], "return_dict": False,
    }  # fmt: skip


def wan() -> nn.Module:
    from diffusers import WanTransformer3DModel

    torch.manual_seed(0)
    made: nn.Module = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=32,
        freq_dim=32, ffn_dim=32, num_layers=4, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    ).eval()  # fmt: skip
    return made


def wan_given(x: Tensor, sigma: float, text: Tensor) -> dict[str, Any]:
    return {"hidden_states": x, "timestep": torch.tensor([1000 * sigma]), "encoder_hidden_states": text,
            "return_dict": False}  # fmt: skip


MODELS = {
    "flux": (flux, flux_given, (1, 16, 4)),
    "qwen": (qwen, qwen_given, (1, 16, 4)),
    "wan": (wan, wan_given, (1, 4, 1, 8, 8)),
}
THRESHOLDS = {"flux": 0.35, "qwen": 0.4, "wan": 0.15}  # that leave out some steps of these, and not all
Within = Callable[[int], Any]
"""A context for the forward of a branch."""


@torch.inference_mode()
def sampled(model: nn.Module, given: Callable[..., dict[str, Any]], shape: Sequence[int], within: Within) -> Tensor:
    """A picture from noise with guidance, each branch a forward of its own."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(*shape, generator=generator)
    texts = [torch.randn(1, 5, 32, generator=generator) for _ in range(2)]
    sigmas = torch.linspace(1, 0, STEPS + 1).tolist()
    for sigma, following in pairwise(sigmas):
        found = []
        for branch, text in enumerate(texts):
            with within(branch):
                found.append(model(**given(x, sigma, text))[0])
        x = x + (following - sigma) * (found[1] + 2.0 * (found[0] - found[1]))
    return x


def ours(cache: StepCache) -> tuple[Within, list[Memory]]:
    memories = [Memory(), Memory()]
    return lambda branch: cache.remembering(memories[branch], whole=False), memories


@contextmanager
def nothing(branch: int) -> Iterator[None]:
    yield


# --- first block ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_the_first_block_cache_is_that_of_diffusers(name: str) -> None:
    from diffusers.hooks import FirstBlockCacheConfig, apply_first_block_cache

    (make, given, shape), threshold = MODELS[name], THRESHOLDS[name]
    theirs = make()
    apply_first_block_cache(theirs, FirstBlockCacheConfig(threshold=threshold))
    expected = sampled(theirs, given, shape, lambda branch: theirs.cache_context(f"branch {branch}"))  # type: ignore[operator]
    mine = make()
    within, memories = ours(StepCache("first_block", threshold, cacheable(mine)))
    found = sampled(mine, given, shape, within)
    assert torch.allclose(found, expected, atol=1e-5)
    assert all(0 < memory.skipped < STEPS - 1 for memory in memories), "some steps were left out, some were not"
    assert not torch.allclose(found, sampled(make(), given, shape, nothing), atol=1e-5)


@pytest.mark.parametrize("kind", ["first_block", "tea"])
def test_a_threshold_of_zero_leaves_nothing_out_and_outside_of_requests_nothing_changes(kind: str) -> None:
    make, given, shape = MODELS["flux"]
    plain = sampled(make(), given, shape, nothing)
    model = make()
    about = Cacheable(cacheable(model).lists, lambda block, named: named["hidden_states"])
    cache = StepCache(kind, 0.0, about)
    within, memories = ours(cache)
    assert torch.equal(sampled(model, given, shape, within), plain)
    assert [memory.skipped for memory in memories] == [0, 0]
    assert torch.equal(sampled(model, given, shape, nothing), plain)


def test_what_is_remembered_belongs_to_a_branch_of_a_request() -> None:
    """Two requests whose steps interleave give what each gives alone; so does the second after the first."""
    make, given, shape = MODELS["qwen"]
    model = make()
    cache = StepCache("first_block", THRESHOLDS["qwen"], cacheable(model))
    alone = sampled(model, given, shape, ours(cache)[0])
    other, _ = ours(cache)
    noise = torch.Generator().manual_seed(9)

    def within(branch: int) -> Any:
        with torch.inference_mode(), other(branch):  # somebody else's step in between
            model(**given(torch.randn(*shape, generator=noise), 0.5, torch.randn(1, 5, 32, generator=noise)))
        return mine(branch)

    mine, memories = ours(cache)
    assert torch.equal(sampled(model, given, shape, within), alone)
    assert torch.equal(sampled(model, given, shape, ours(cache)[0]), alone)
    assert memories[0].skipped


# --- tea --------------------------------------------------------------------------------------------------------------


class Toy(nn.Module):
    """Two lists of blocks that differ in their streams."""

    class Double(nn.Module):
        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor
            self.ran = 0

        def forward(self, x: Tensor, other: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
            self.ran += 1
            return other + self.factor * t, x + self.factor * (other.mean() + t * x)

    class Single(Double):
        def forward(self, x: Tensor, t: Tensor) -> Tensor:  # type: ignore[override]
            self.ran += 1
            return x + self.factor * torch.sin(x * t)

    def __init__(self) -> None:
        super().__init__()
        self.pairs = nn.ModuleList(Toy.Double(f) for f in (0.3, 0.1, 0.2))
        self.lone = nn.ModuleList(Toy.Single(f) for f in (0.5, 0.4))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        other = x.flip(0)
        for block in self.pairs:
            other, x = block(x, other, t=t)
        joined = torch.cat((other, x))
        for block in self.lone:
            joined = block(joined, t)
        return joined[len(other) :]

    def about(self) -> Cacheable:
        lists = (Blocks(self.pairs, ("other", "x"), "x"), Blocks(self.lone, ("x",), "x"))
        return Cacheable(lists, lambda block, given: given["x"] * given["t"], (2.0, 0.5))


def test_tea_adds_up_changes_until_they_reach_the_threshold() -> None:
    """Against the same rule, written as one loop over all that the blocks add."""
    toy, plain, threshold = Toy(), Toy(), 1.6
    cache, memory = StepCache("tea", threshold, toy.about()), Memory()
    times = [0.9, 0.85, 0.7, 0.69, 0.68, 0.5, 0.2, 0.19, 0.1]
    x = torch.linspace(0.1, 1.0, 7)
    ran: list[bool] = []
    previous: Tensor | None = None
    distance, added = 0.0, torch.zeros(7)
    for step, t in enumerate(map(torch.tensor, times)):
        whole = step in (0, len(times) - 1)
        signal = x * t
        if previous is not None:
            distance += 2.0 * float((signal - previous).abs().mean() / previous.abs().mean()) + 0.5
        previous = signal
        runs = whole or distance >= threshold
        if runs:
            distance, added = 0.0, plain(x, t) - x
        ran.append(runs)
        before = toy.pairs[0].ran
        with cache.remembering(memory, whole=whole):
            found = toy(x, t)
        assert torch.allclose(found, x + added, atol=1e-6)
        assert (toy.pairs[0].ran > before) == runs, "not even the first block runs where it can be left out"
        x = x - 0.05 * found
    assert True in ran[1:-1]
    assert False in ran
    assert memory.skipped == ran.count(False)
    assert ran[-1]


def test_lists_whose_streams_differ_are_left_out_each_by_what_it_added() -> None:
    toy = Toy()
    cache, memory = StepCache("first_block", 10.0, toy.about()), Memory()
    x = torch.linspace(0.1, 1.0, 7)
    with cache.remembering(memory, whole=False):
        first = toy(x, torch.tensor(0.5))
        again = toy(x, torch.tensor(0.5))
    assert torch.allclose(first, again, atol=1e-6)
    assert [block.ran for block in (*toy.pairs, *toy.lone)] == [2, 1, 1, 1, 1]


def test_tea_needs_to_know_what_to_compare() -> None:
    with pytest.raises(ValueError, match="does not say what the first block sees"):
        StepCache("tea", 0.1, cacheable(flux()))


def test_diffusers_must_know_the_blocks() -> None:
    with pytest.raises(ValueError, match="knows of no list of blocks in Toy"):
        cacheable(Toy())


# --- in the engine ----------------------------------------------------------------------------------------------------


def test_a_family_that_says_nothing_of_its_blocks_does_not_load_with_a_step_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        pytest.raises(ValueError, match="which blocks a step cache could leave out"),
        loaded(Sketch(), monkeypatch, step_cache="first_block", step_cache_threshold=0.1),
    ):
        pass


def images(stages: Emoji, *asked: dict[str, Any]) -> list[Any]:
    async def run() -> list[Any]:
        return list(await asyncio.gather(*(painted(stages.begun(**one)) for one in asked)))

    return asyncio.run(run())


A = {"prompt": "a red heart", "seed": 1, "steps": 6, "guidance": 1.5}
B = {"prompt": "a slice of pizza", "seed": 2, "steps": 5, "guidance": 3.0}


@pytest.mark.parametrize(("kind", "threshold"), [("first_block", 0.6), ("tea", 0.6)])
def test_the_emoji_painter_skips_steps_and_paints_nearly_the_same(kind: str, threshold: float) -> None:
    with emoji() as stages:
        (plain,) = images(stages, A)
    with emoji(step_cache=kind, step_cache_threshold=threshold) as stages:
        first, other = images(stages, A, B)  # at once
        (after,) = images(stages, A)
        stats = stages.paint.stats()
        assert not any(request.memories for request in stages.paint._running)
    skipped = [one.finished.stages["paint"]["skipped"] for one in (first, other, after)]
    assert first.image.tobytes() == after.image.tobytes(), "neighbours and earlier requests change nothing"
    assert skipped[0] == skipped[2] > 0
    assert sum(skipped) == stats["skipped"]
    drift = np.abs(first.image.astype(int) - plain.image.astype(int)).mean() / 255
    assert 0 < drift < 0.08
