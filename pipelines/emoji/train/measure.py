"""Pictures as omnic paints them, many at once, and what the judge says of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from judge import Judge
from torch import Tensor
from words import States

from omnic.runtime.families.emoji_network import EmojiDiT


@torch.inference_mode()
def paint(
    network: EmojiDiT, states: States, empty: States, seeds: Sequence[int], config: Mapping[str, Any], rows: int = 480
) -> Tensor:
    """Pictures [N, 3, 64, 64] in [-1, 1] of the texts `states`, in float32.

    The noise of each is its seed's alone, and steps, guidance and scheduler are `config`'s, as in omnic's stage
    (`omnic/runtime/families/emoji_dit.py`), so a picture is the one that omnic paints for that text and seed.
    """
    from diffusers import FlowMatchEulerDiscreteScheduler

    device, c = next(network.parameters()).device, network.config
    steps, scale = int(config["default"]["steps"]), float(config["default"]["guidance"])
    done = []
    for at in range(0, len(seeds), rows):
        some = seeds[at : at + rows]
        x = torch.cat([_noise(seed, c.channels, c.size) for seed in some]).to(device)
        text, mask = states.rows(at, at + rows).of(torch.arange(len(some), device=device))
        other, hidden = (part.expand(len(some), *part.shape[1:]) for part in (empty.values.float(), empty.mask))
        scheduler = FlowMatchEulerDiscreteScheduler.from_config(dict(config["scheduler"]))
        scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), device=device)
        for timestep in scheduler.timesteps:
            t = timestep.expand(len(some)) / 1000
            with_text, without = network(x, t, text, mask), network(x, t, other, hidden)
            x = scheduler.step(without + scale * (with_text - without), timestep, x, return_dict=False)[0]
        done.append(x.clamp(-1, 1))
    return torch.cat(done)


def _noise(seed: int, channels: int, size: int) -> Tensor:
    return torch.randn(1, channels, size, size, generator=torch.Generator("cpu").manual_seed(seed))


@torch.inference_mode()
def judged(judge: Judge, painted: Tensor) -> list[int]:
    """The emoji that the judge sees in each picture, by number."""
    found: list[int] = judge(painted).argmax(1).tolist()
    return found


def share(right: Sequence[bool]) -> float:
    """How many of them, rounded to a hundredth of a percent."""
    return round(sum(right) / len(right), 4) if right else 0.0


def likeness(painted: Tensor, wanted: Tensor) -> float:
    """The median over pictures of the peak signal-to-noise ratio in dB, for values in [-1, 1]."""
    errors = (painted - wanted).square().mean((1, 2, 3)).clamp(min=1e-9)
    return round(statistics.median((10 * torch.log10(4 / errors)).tolist()), 2)
