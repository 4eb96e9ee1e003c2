"""Layer offload: the weights of blocks lie in the host's memory, and each block's are on the device while it runs.

Two buffers on the device take the weights of one block each. While a block runs out of one, those of the next are
copied into the other; a block that has run makes room for the one after the next, and the last ones for the first ones,
of the next step. Blocks keep the buffer that they have: their weights have the same address whenever they run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from omnic.contract.blocks import FEWEST, LISTS, aligned, leaving
from omnic.runtime.errors import Elsewhere
from omnic.runtime.link import Link, Pages, link_to
from omnic.runtime.modules import put


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor of a block lies in its buffer, and which name of which module it has."""

    owner: nn.Module
    leaf: str
    start: int
    shape: tuple[int, ...]
    dtype: torch.dtype

    def within(self, flat: Tensor) -> Tensor:
        """The tensor as a part of `flat`, bytes."""
        count = prod(self.shape) * self.dtype.itemsize
        return flat[self.start : self.start + count].view(self.dtype).view(self.shape)

    def put(self, tensor: Tensor) -> None:
        put(self.owner, self.leaf, tensor)


@dataclass(eq=False, slots=True)
class Away:
    """A block whose weights lie on the host."""

    block: nn.Module
    pages: Pages
    places: tuple[Place, ...]
    slot: int  # the buffer that it has
    follower: Away | None = None  # has the same buffer next


@dataclass(eq=False, slots=True)
class Offload:
    """The offloaded blocks of a stage. `resident` blocks of each transformer stay on the device.

    Weights are read into `rooms` first; `begin` then sends the blocks on their way. Of no effect for modules without
    lists of at least `contract.blocks.FEWEST` more blocks than stay.
    """

    resident: int
    device: torch.device
    link: Link | None = None
    fetched_bytes: int = 0
    missed: int = 0  # blocks that had not been sent for when they ran
    _lines: list[list[Away]] = field(default_factory=list)  # of each transformer
    _buffers: tuple[Tensor, ...] = ()
    _held: list[Away | None] = field(default_factory=lambda: [None, None])
    _copied: list[Any] = field(default_factory=lambda: [None, None])  # marks, by buffer
    _worked: list[Any] = field(default_factory=lambda: [None, None])

    @property
    def host_bytes(self) -> int:
        return sum(away.pages.bytes.numel() for line in self._lines for away in line)

    @property
    def device_bytes(self) -> int:
        """Of both buffers."""
        return sum(buffer.numel() for buffer in self._buffers)

    def rooms(self, module: nn.Module, wanted: Mapping[str, tuple[tuple[int, ...], torch.dtype]]) -> dict[str, Tensor]:
        """Memory on the host for those of the `wanted` tensors of a module that leave the device."""
        blocks = [
            (f"{name}.{at}.", block)
            for name in LISTS
            if isinstance(found := getattr(module, name, None), nn.ModuleList)
            for at, block in enumerate(found)
        ]
        if len(blocks) - self.resident < FEWEST:
            return {}
        line, rooms = [], dict[str, Tensor]()
        for number, at in enumerate(leaving(len(blocks), self.resident)):
            prefix, block = blocks[at]
            names = [name for name in wanted if name.startswith(prefix)]
            places, size = _laid_out(module, {name: wanted[name] for name in names})
            away = Away(block, Pages(size), places, number % 2)
            rooms |= {name: place.within(away.pages.bytes) for name, place in zip(names, places, strict=True)}
            line.append(away)
        for number, away in enumerate(line):
            away.follower = line[number + 2] if number + 2 < len(line) else line[number % 2]
        self._lines.append(line)
        return rooms

    def begin(self) -> None:
        """Pins what lies on the host, and puts itself around the blocks. Raises torch's OutOfMemoryError, Elsewhere
        where so much cannot be pinned, ValueError where there is nothing to offload."""
        everything = [away for line in self._lines for away in line]
        if not everything:
            raise ValueError("it has no blocks that could leave the device")
        self.link = self.link or link_to(self.device)
        size = max(away.pages.bytes.numel() for away in everything)
        self._buffers = tuple(torch.empty(size, dtype=torch.uint8, device=self.device) for _ in range(2))
        self._worked = [self.link.worked()] * 2  # what had the buffers' memory before
        for away in everything:
            try:
                self.link.pin(away.pages)
            except RuntimeError as error:
                much, why = self.host_bytes / 2**30, str(error).splitlines()[0]
                raise Elsewhere(
                    f"this machine does not let {much:.1f} GiB of its memory be pinned, for blocks that lie there"
                    f" ({why}): let more of them stay on the device"
                ) from error
            for place in away.places:
                place.put(place.within(self._buffers[away.slot]))
            inner = away.block.forward
            away.block.forward = update_wrapper(partial(self._run, away, inner), inner)  # others read its signature
        for away in self._lines[0][:2]:
            self._fetch(away)

    def stats(self) -> dict[str, float]:
        """`fetched_bytes` went to the device so far; `missed` blocks had not been sent for when they ran."""
        return {"fetched_bytes": float(self.fetched_bytes), "missed": float(self.missed)}

    def close(self) -> None:
        """Lets go of the memory of both sides. The blocks cannot run any more."""
        if self.link is not None:
            self.link.close()
        for line in self._lines:
            for away in line:
                away.pages.close()
        self._lines, self._buffers, self._held = [], (), [None, None]

    def _run(self, away: Away, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs a block once its weights are there, and then sends for those that take their place."""
        assert self.link is not None
        assert away.follower is not None
        if self._held[away.slot] is not away:  # another transformer ran, or blocks were left out
            self.missed += 1
            self._fetch(away)
        self.link.wait(self._copied[away.slot])
        try:
            return forward(*args, **kwargs)
        finally:
            self._worked[away.slot] = self.link.worked()
            self._fetch(away.follower)

    def _fetch(self, away: Away) -> None:
        assert self.link is not None
        source = away.pages.bytes
        into = self._buffers[away.slot][: source.numel()]
        self._copied[away.slot] = self.link.copy(into, source, self._worked[away.slot])
        self._held[away.slot] = away
        self.fetched_bytes += source.numel()


def _laid_out(
    module: nn.Module, wanted: Mapping[str, tuple[tuple[int, ...], torch.dtype]]
) -> tuple[tuple[Place, ...], int]:
    """Places for tensors one after the other, and the bytes of them all."""
    places, end = [], 0
    for name, (shape, dtype) in wanted.items():
        owner, _, leaf = name.rpartition(".")
        places.append(Place(module.get_submodule(owner), leaf, end, tuple(shape), dtype))
        end += aligned(prod(shape) * dtype.itemsize)
    return tuple(places), end
