"""From files to a GPU, through two small buffers of pinned memory: `Staging`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_BYTES = 64 << 20  # of each buffer


class Staging:
    """While one buffer is copied to the device, the other is filled. Host memory is that of the two, whatever the size
    of the tensors."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._turn = device, 0
        self._buffers = [torch.empty(_BYTES, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        self._copied: list[Any] = [None, None]

    def fill(self, into: Tensor, stored: torch.dtype, read: Callable[[Tensor], None]) -> None:
        """Fills `into`, on the device, with what `read` puts into a piece of host memory, pieces in order. What is
        stored in another dtype than that of `into` is converted on the device."""
        flat, step = into.view(-1), _BYTES // stored.itemsize
        for at in range(0, flat.numel(), step):
            piece = flat[at : at + step]
            part = self._part(piece.numel(), stored)
            read(part)
            piece.copy_(part.to(self._device, non_blocking=True))
            self._copied[self._turn].record()

    def _part(self, elements: int, dtype: torch.dtype) -> Tensor:
        """The buffer whose turn it is, once the device no longer reads it."""
        self._turn = 1 - self._turn
        if self._copied[self._turn] is None:
            self._copied[self._turn] = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's stubs miss it
        else:
            self._copied[self._turn].synchronize()
        return self._buffers[self._turn][: elements * dtype.itemsize].view(dtype)
