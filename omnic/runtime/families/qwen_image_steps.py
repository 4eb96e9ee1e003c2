"""Qwen-Image's steps for capture: what a request brings along, and the buffers of its graphs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref as Ref

import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.attention import Attention
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job
from omnic.runtime.home import Home

if TYPE_CHECKING:
    from omnic.runtime.families.qwen_image_network import Modulations, Network

_SPECIAL = ("zero_cond_t", "use_additional_t_cond", "use_layer3d_rope", "guidance_embeds")
_KEPT = 4  # schedules whose modulations are kept


@dataclass(frozen=True, slots=True)
class Once:
    """What a request brings to all of its steps."""

    texts: tuple[Tensor, ...]  # of each branch, [1, tokens, width]
    modulations: Modulations


@dataclass(eq=False, slots=True)
class Buffers:
    text: Tensor  # [rows, tokens, width]
    reference: Tensor | None  # [jobs, places, channels]: a picture to edit
    lengths: Tensor  # int32 [rows]: places of pictures and text that count
    attention: Attention
    modulations: Modulations  # an entry a job
    turns: tuple[Tensor, Tensor]
    branches: int
    held: list[Ref[Job] | None]  # whose text and reference lie here, if it is still in work

    def holds(self, number: int, job: Job) -> bool:
        held = self.held[number]
        return held is not None and held() is job


class Steps:
    """Satisfies `steps.Network`."""

    def __init__(self, denoiser: Denoiser, network: Network, home: Home, texts: Sequence[int]) -> None:
        self._denoiser, self._network, self._texts = denoiser, network, tuple(texts)
        self._dtype, self._device = home.torch_dtype, home.device
        self._modulations: OrderedDict[tuple[float, ...], Modulations] = OrderedDict()

    def examples(self, size: Size) -> Iterator[Job]:
        """With texts of each length, with and without guidance."""
        for tokens in reversed(self._texts):
            states = {"states": torch.zeros(1, tokens, self._network.read)}
            for guidance in (2.0, 1.0):
                settings = {"size": size, "steps": 1, "guidance": guidance}
                job = self._denoiser.prepare(Ask(0, {"condition": Embeds(states, states)}, settings))
                job.move(self._device)
                yield job

    def shape(self, jobs: Sequence[Job]) -> tuple[Any, int]:
        longest = max(branch["states"].shape[1] for job in jobs for branch in job.branches)
        return tuple(jobs[0].fixed["sides"]), next((n for n in self._texts if n >= longest), longest)

    def once(self, job: Job) -> None:
        texts = tuple(self._network.text(branch["states"].to(self._dtype)) for branch in job.branches)
        key = tuple((job.schedules[0].timesteps / 1000).tolist())
        if key not in self._modulations:
            times = torch.tensor(key, device=self._device).to(self._dtype)
            self._modulations[key] = self._network.modulations(times)
            if len(self._modulations) > _KEPT:
                self._modulations.popitem(last=False)
        self._modulations.move_to_end(key)
        job.fixed = {**job.fixed, "once": Once(texts, self._modulations[key])}

    def buffers(self, shape: tuple[Any, int], jobs: int, branches: int) -> Buffers:
        sides, tokens = shape
        network, rows = self._network, jobs * branches
        places = [high // 2 * (wide // 2) for high, wide in sides]

        def empty(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=self._dtype, device=self._device)

        lengths = torch.full((rows,), sum(places) + tokens, dtype=torch.int32, device=self._device)
        text = empty(rows, tokens, network.width)
        return Buffers(
            text=text,
            reference=empty(jobs, sum(places[1:]), network.channels) if len(places) > 1 else None,
            lengths=lengths,
            attention=Attention.of(rows, sum(places) + tokens, lengths, text),
            modulations=network.empty(jobs),
            turns=network.rotary([(1, high // 2, wide // 2) for high, wide in sides], tokens),
            branches=branches,
            held=[None] * jobs,
        )

    def feed(self, buffers: Buffers, jobs: Sequence[Job]) -> None:
        if not all(buffers.holds(number, job) for number, job in enumerate(jobs)):
            self._take_in(buffers, jobs)
        for number, job in enumerate(jobs):
            once: Once = job.fixed["once"]
            buffers.modulations.blocks[number].copy_(once.modulations.blocks[job.step])
            buffers.modulations.last[number].copy_(once.modulations.last[job.step])

    def _take_in(self, buffers: Buffers, jobs: Sequence[Job]) -> None:
        """What stays the same over the steps of jobs, once for as long as they step together."""
        places = buffers.attention.places - buffers.text.shape[1]
        for number, job in enumerate(jobs):
            if buffers.holds(number, job):
                continue
            buffers.held[number] = Ref(job)
            once: Once = job.fixed["once"]
            for branch in range(buffers.branches):
                row, text = number * buffers.branches + branch, once.texts[branch]
                buffers.text[row, : text.shape[1]].copy_(text[0])
                buffers.text[row, text.shape[1] :].zero_()
                buffers.lengths[row].fill_(places + text.shape[1])
            if buffers.reference is not None:
                buffers.reference[number].copy_(job.fixed["reference"][0])
        buffers.attention.seen()

    def run(self, buffers: Buffers, x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen = x[0].to(self._dtype)
        if buffers.reference is not None:
            seen = torch.cat([seen, buffers.reference], 1)
        seen = seen.repeat_interleave(buffers.branches, 0)
        found = self._network(seen, buffers.text, buffers.attention, buffers.modulations, buffers.turns, x[0].shape[1])
        return (found.float(),)


def steps(denoiser: Denoiser, module: Any, home: Home, texts: Sequence[int]) -> Steps | None:
    """None for what the network is not made for: another dtype or device, a checkpoint with conditions of its own."""
    fits = home.device.type == "cuda" and home.torch_dtype == torch.bfloat16
    if not fits or any(module.config.get(name) for name in _SPECIAL):
        return None
    from omnic.runtime.families.qwen_image_network import Network  # triton

    return Steps(denoiser, Network(module), home, texts)
