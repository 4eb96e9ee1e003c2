"""What flows in chunks: `Chunks` cuts latents of many frames into some at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnic.runtime.diffusion import Latents


class Chunks:
    """Cuts latents [1, C, frames, …] into chunks of `size` frames, the last as short as it has to be. With `first`, the
    chunks before have those sizes. Satisfies `edges.Segmenter`."""

    def __init__(self, size: int, first: Sequence[int] | int = ()) -> None:
        self._size = size
        self._first = list((first,) if isinstance(first, int) else first)
        self._held: Latents | None = None

    def push(self, item: Latents) -> list[Any]:
        return list(self._cut(item))

    def flush(self) -> list[Any]:
        held, self._held = self._held, None
        return [] if held is None else [held]

    def _cut(self, item: Latents) -> Iterator[Latents]:
        import torch

        values = item.values if self._held is None else torch.cat([self._held.values, item.values], 2)
        at = 0
        while values.shape[2] - at >= (size := self._first[0] if self._first else self._size):
            yield replace(item, values=values[:, :, at : at + size])
            at += size
            self._first = self._first[1:]
        self._held = replace(item, values=values[:, :, at:]) if at < values.shape[2] else None
