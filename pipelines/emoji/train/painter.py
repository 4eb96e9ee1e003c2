"""Training of the painter: flow matching with classifier-free dropout, and a moving average of the weights."""

from __future__ import annotations

import copy
import math
import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor
from words import States

from omnic.runtime.families.emoji_network import Config, EmojiDiT


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train: until `steps` or `seconds` have passed, whichever comes first; the rate falls to zero by then."""

    seconds: float
    steps: int
    rows: int = 256  # pictures a step
    rate: float = 1e-3
    warm_up: int = 500  # steps
    drop: float = 0.1  # share of captions left out, so that the network learns to paint without one
    noise: float = 0.1  # on the token states, against the size that they have
    average: float = 0.9995  # of the weights, at each step
    names: float = 0.2  # share of captions that are the plain name


@dataclass(frozen=True, slots=True)
class Trained:
    """The averaged network, and what training was."""

    network: EmojiDiT
    steps: int
    seconds: float
    losses: tuple[tuple[int, float], ...]  # a step, and the mean loss of the steps since the last one told


def train(pictures: Tensor, states: States, empty: States, plan: Plan, seed: int, config: Config) -> Trained:
    """Trains on `pictures` [N, 3, 64, 64] in [-1, 1].

    `states` has as many texts of each emoji, all of one emoji together, its name first; `empty` is the text "".
    """
    device = pictures.device
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    network = EmojiDiT(config).to(device)
    averaged = copy.deepcopy(network).requires_grad_(False)
    on_gpu = device.type == "cuda"
    step_of = torch.compile(_loss) if on_gpu else _loss
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=on_gpu
    )
    each = len(states.mask) // len(pictures)
    began, losses, since = time.perf_counter(), [], []
    step, done = 0, 0.0
    while done < 1:
        for group in optimiser.param_groups:
            group["lr"] = plan.rate * min(1.0, (step + 1) / plan.warm_up) * _fall(done)
        x, text, mask = _drawn(pictures, states, empty, each, plan, generator)
        t = torch.arange(plan.rows, device=device) + torch.rand(plan.rows, generator=generator, device=device)
        t = t / plan.rows  # one time from each equal part of 0..1
        noise = torch.randn(x.shape, generator=generator, device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=on_gpu):
            loss = step_of(network, x, noise, t, text, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        kept = min(plan.average, (step + 1) / (step + 10))
        torch._foreach_lerp_(list(averaged.parameters()), list(network.parameters()), 1 - kept)
        step += 1
        if step == 1:
            began = time.perf_counter()  # the first step compiles
        since.append(loss.detach())
        if step % 50 == 0 or step == plan.steps:
            if on_gpu:
                torch.cuda.synchronize()
            if step % 500 == 0:
                losses.append((step, float(torch.stack(since).mean())))
                since.clear()
                print(f"{time.perf_counter() - began:7.1f} s  step {step}  loss {losses[-1][1]:.5f}", file=sys.stderr)
        done = max(step / plan.steps, (time.perf_counter() - began) / plan.seconds)
    return Trained(averaged.eval(), step, time.perf_counter() - began, tuple(losses))


def _loss(network: EmojiDiT, x: Tensor, noise: Tensor, t: Tensor, text: Tensor, mask: Tensor) -> Tensor:
    """The squared error of the velocity at time t of the straight way from picture to noise."""
    at = t.view(-1, 1, 1, 1)
    velocity = network(at * noise + (1 - at) * x, t, text, mask)
    return (velocity.float() - (noise - x)).square().mean()


def _drawn(
    pictures: Tensor, states: States, empty: States, each: int, plan: Plan, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures of a batch, and the token states and masks of a caption for each."""
    device, n = pictures.device, plan.rows

    def chance(share: float) -> Tensor:
        return torch.rand(n, generator=generator, device=device) < share

    emoji = torch.randint(len(pictures), (n,), generator=generator, device=device)
    variant = torch.randint(each, (n,), generator=generator, device=device)
    variant = torch.where(chance(plan.names), 0, variant)
    text, mask = states.of(emoji * each + variant)
    size = text.square().sum(-1).div(text.shape[-1]).sqrt()[..., None]  # 0 at padding
    strength = plan.noise * torch.rand(n, 1, 1, generator=generator, device=device)
    text = text + torch.randn(text.shape, generator=generator, device=device) * size * strength
    dropped = chance(plan.drop)
    text = torch.where(dropped[:, None, None], empty.values[0].float(), text)
    mask = torch.where(dropped[:, None], empty.mask[0], mask)
    return pictures[emoji], text, mask


def _fall(done: float) -> float:
    """From 1 to 0 along half a cosine."""
    return 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
