"""Step caches: where a step changes little, most of a transformer's blocks are left out, and what they added the last
time is added again. What is remembered belongs to one guidance branch of one request: `Memory`.

`first_block` runs the first block and compares what it adds with what it added when all blocks last ran (the idea of
ParaAttention's first-block cache). `tea` compares what goes into the first block, modulated by the time, with the step
before, and adds up the changes until they reach the threshold (Liu et al., "Timestep Embedding Tells: It's Time to
Cache for Video Diffusion Model", 2024). The first and the last step run whole.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from omnic.runtime.diffusion import Denoiser, Row

KINDS = ("first_block", "tea")
Streams = tuple[Any, ...]  # of tensors; the last block of SD3 gives None for the one that nobody reads any more


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of one class that run one after the other. Each takes `streams` as arguments and gives them back changed:
    a tensor where there is one, else a tuple in this order. `main` is the stream whose changes count."""

    blocks: nn.ModuleList
    streams: tuple[str, ...] = ("hidden_states",)
    main: str = "hidden_states"


Modulated = Callable[[nn.Module, Mapping[str, Any]], Tensor]
"""What a block's attention sees of its main stream, from the block and its arguments by name."""


@dataclass(frozen=True, slots=True)
class Cacheable:
    """What a step cache must know of a transformer: its lists of blocks, in the order in which they run.

    For `tea`: what goes into the first block, and the polynomial that makes of its relative change an estimate of
    that of the output, highest power first.
    """

    lists: tuple[Blocks, ...]
    modulated: Modulated | None = None
    polynomial: tuple[float, ...] = (1.0, 0.0)


@runtime_checkable
class HasBlocks(Protocol):
    """A denoiser that can have a step cache."""

    def blocks(self) -> Sequence[Cacheable]:
        """One for each transformer it has: two experts are two."""
        ...


@dataclass(slots=True)
class Memory:
    """What one guidance branch of one request remembers of its earlier steps."""

    reference: Tensor | None = None  # what changes are measured against
    added: dict[int, Streams] = field(default_factory=dict)  # by each list of blocks, the last time it ran whole
    distance: float = 0.0  # since then
    skipped: int = 0  # steps whose blocks were left out


Memories = dict[int, list[Memory]]
"""Of a request: by branch, one for each transformer."""


class StepCache:
    """Puts itself around the blocks of a transformer; of no effect but within `remembering`."""

    def __init__(self, kind: str, threshold: float, transformer: Cacheable) -> None:
        """`kind` is one of KINDS. Raises ValueError for `tea` where the family does not say what to compare."""
        if kind == "tea" and transformer.modulated is None:
            raise ValueError("its family does not say what the first block sees, which `tea` compares")
        self._tea, self._threshold, self._transformer = kind == "tea", threshold, transformer
        self._memory: Memory | None = None
        self._whole = self._skips = False  # of the forward that runs
        self._before: Streams = ()  # what the blocks of a list add is counted from
        for number, blocks in enumerate(transformer.lists):
            names = tuple(inspect.signature(blocks.blocks[0].forward).parameters)
            for at, block in enumerate(blocks.blocks):
                block.forward = partial(self._run, _Place(number, at, blocks, names, block, block.forward))

    @contextmanager
    def remembering(self, memory: Memory, *, whole: bool) -> Iterator[None]:
        """Forwards within use `memory`; with `whole` all blocks run, and are remembered."""
        self._memory, self._whole = memory, whole
        try:
            yield
        finally:
            self._memory, self._before = None, ()

    def _run(self, place: _Place, *args: Any, **kwargs: Any) -> Any:
        """Runs a block, or stands in for it."""
        memory = self._memory
        if memory is None:
            return place.forward(*args, **kwargs)
        if place.leads:
            return self._lead(memory, place, args, kwargs)
        given = place.streams(args, kwargs)
        if self._skips:
            return place.shaped(_sum(given, memory.added[place.list]) if place.first else given)
        if place.first:
            self._before = given
        return self._ran(memory, place, place.forward(*args, **kwargs))

    def _lead(self, memory: Memory, place: _Place, args: Any, kwargs: Any) -> Any:
        """The first block of all, where it is decided whether the others run."""
        given = place.streams(args, kwargs)
        if self._tea:
            assert self._transformer.modulated is not None
            signal = self._transformer.modulated(place.block, place.named(args, kwargs))
            self._skips = self._still(memory, signal)
            memory.reference = signal
            if self._skips:
                return place.shaped(_sum(given, memory.added[0]))
            self._before = given
            return self._ran(memory, place, place.forward(*args, **kwargs))
        found = place.forward(*args, **kwargs)
        out = found if isinstance(found, tuple) else (found,)
        signal = out[place.main] - given[place.main]
        self._skips = self._still(memory, signal)
        if self._skips:
            return place.shaped(_sum(out, memory.added[0]))
        memory.reference, self._before = signal, out
        return self._ran(memory, place, found)

    def _still(self, memory: Memory, signal: Tensor) -> bool:
        """Whether so little has changed that the blocks can be left out."""
        if memory.reference is None or not memory.added or self._whole:
            memory.distance = 0.0
            return False
        change = float((signal - memory.reference).abs().mean() / memory.reference.abs().mean())
        if self._tea:
            memory.distance += abs(_evaluated(self._transformer.polynomial, change))
        else:
            memory.distance = change
        if memory.distance < self._threshold:
            memory.skipped += 1
            return True
        memory.distance = 0.0
        return False

    def _ran(self, memory: Memory, place: _Place, found: Any) -> Any:
        if place.last:
            out = found if isinstance(found, tuple) else (found,)
            pairs = zip(out, self._before, strict=True)
            memory.added[place.list] = tuple(None if o is None else o - b for o, b in pairs)
        return found


class StepCaches:
    """The step caches of a denoiser, one for each transformer that it has."""

    def __init__(self, kind: str, threshold: float, denoiser: Denoiser) -> None:
        """Raises ValueError for a denoiser that cannot have this kind."""
        if not isinstance(denoiser, HasBlocks):
            raise ValueError("its family does not say which blocks a step cache could leave out")
        self._denoiser = denoiser
        self._caches = [StepCache(kind, threshold, transformer) for transformer in denoiser.blocks()]

    def forward(self, memories: Memories, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        """As `Denoiser.forward`, for the rows of one job, whose `memories` are kept by branch: a row at a time, as
        blocks that one branch needs another may leave out."""
        found = []
        for at, row in enumerate(rows):
            mine = memories.setdefault(row.branch, [Memory() for _ in self._caches])
            whole = row.job.step in (0, row.job.steps - 1)
            with ExitStack() as stack:
                for cache, memory in zip(self._caches, mine, strict=True):
                    stack.enter_context(cache.remembering(memory, whole=whole))
                found.append(self._denoiser.forward(tuple(i[at : at + 1] for i in x), t[at : at + 1], [row]))
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


@dataclass(frozen=True, slots=True)
class _Place:
    """A block, where it stands, and the names of its arguments."""

    list: int
    at: int
    blocks: Blocks
    names: tuple[str, ...]
    block: nn.Module
    forward: Callable[..., Any]

    @property
    def leads(self) -> bool:
        return self.list == 0 and self.at == 0

    @property
    def first(self) -> bool:
        return self.at == 0

    @property
    def last(self) -> bool:
        return self.at == len(self.blocks.blocks) - 1

    @property
    def main(self) -> int:
        return self.blocks.streams.index(self.blocks.main)

    def streams(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Streams:
        return tuple(kwargs[name] if name in kwargs else args[self.names.index(name)] for name in self.blocks.streams)

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(self.names, args, strict=False)) | dict(kwargs)

    def shaped(self, streams: Streams) -> Any:
        """As the block itself would give it."""
        return streams if len(streams) > 1 else streams[0]


def _sum(a: Streams, b: Streams) -> Streams:
    return tuple(x if y is None else x + y for x, y in zip(a, b, strict=True))


def _evaluated(polynomial: Sequence[float], x: float) -> float:
    found = 0.0
    for factor in polynomial:
        found = found * x + factor
    return found


def cacheable(transformer: nn.Module) -> Cacheable:
    """What diffusers itself knows of the blocks of one of its transformers. Raises ValueError where that is nothing."""
    from diffusers.hooks._common import _ALL_TRANSFORMER_BLOCK_IDENTIFIERS
    from diffusers.hooks._helpers import TransformerBlockRegistry

    lists = []
    for name, child in transformer.named_children():
        if name in _ALL_TRANSFORMER_BLOCK_IDENTIFIERS and isinstance(child, nn.ModuleList) and len(child):
            about = TransformerBlockRegistry.get(type(child[0]))
            main, other = about.hidden_states_argument_name, about.encoder_hidden_states_argument_name
            takes = list(inspect.signature(child[0].forward).parameters)
            main = main if main in takes else takes[0]  # Z-Image calls it `x`
            streams = {about.return_hidden_states_index: main}
            if about.return_encoder_hidden_states_index is not None:
                streams[about.return_encoder_hidden_states_index] = other
            lists.append(Blocks(child, tuple(streams[i] for i in sorted(streams)), main))
    if not lists:
        raise ValueError(f"diffusers knows of no list of blocks in {type(transformer).__name__}")
    return Cacheable(tuple(lists))
