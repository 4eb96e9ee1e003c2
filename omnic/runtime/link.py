"""From the host's memory to a device, beside the device's work: `Link`, and `Pages` that a device reads by itself."""

from __future__ import annotations

import mmap
import weakref
from contextlib import suppress
from typing import Any, Protocol

import torch
from torch import Tensor


class Pages:
    """Memory of the host in pages of its own: exactly as much as asked for, where torch's pinned memory is rounded up
    to a power of two, and gone at once when it is let go of."""

    def __init__(self, count: int) -> None:
        pages = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # of systems without large pages
            pages.madvise(mmap.MADV_HUGEPAGE)  # fewer to pin, fewer to look up
        self.bytes = torch.frombuffer(pages, dtype=torch.uint8)
        self._unpin: Any = None

    def pin(self) -> None:
        """Keeps the pages where they are, so that a GPU reads them by itself. Raises RuntimeError where the system does
        not let a process pin as much. Does nothing where they are pinned."""
        if self._unpin is not None:
            return
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch's stubs miss it
        address = self.bytes.data_ptr()
        torch.cuda.check_error(int(runtime.cudaHostRegister(address, self.bytes.numel(), 0)))
        self._unpin = weakref.finalize(self.bytes, runtime.cudaHostUnregister, address)

    def close(self) -> None:
        """Unpins them. Nothing may be on its way from them any more."""
        if self._unpin is not None:
            self._unpin()


class Link(Protocol):
    """Copies in the order in which they are asked for. A mark is a point in the device's work or among the copies."""

    def pin(self, pages: Pages) -> None:
        """Makes pages ready to be copied from. Raises RuntimeError where the system does not let that be."""
        ...

    def worked(self) -> Any:
        """All work that the device has been given so far, as a mark."""
        ...

    def copy(self, into: Tensor, source: Tensor, after: Any) -> Any:
        """Begins a copy to the device once `after`, a mark of its work, is done. Returns its own mark."""
        ...

    def wait(self, copied: Any) -> None:
        """Work that the device is given from now on begins once this copy is done."""
        ...

    def close(self) -> None:
        """Returns once no copy is on its way. The link cannot be used any more."""
        ...


class Beside:
    """Satisfies `Link`: a stream of its own on a GPU, which the host does not wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's stubs miss it

    def pin(self, pages: Pages) -> None:
        pages.pin()

    def worked(self) -> Any:
        return torch.cuda.current_stream(self._device).record_event()

    def copy(self, into: Tensor, source: Tensor, after: Any) -> Any:
        self._stream.wait_event(after)
        with torch.cuda.stream(self._stream):
            into.copy_(source, non_blocking=True)
        return self._stream.record_event()

    def wait(self, copied: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(copied)

    def close(self) -> None:
        self._stream.synchronize()


class AtOnce:
    """Satisfies `Link` where there is nothing to copy beside: a copy is done when it has been asked for."""

    def pin(self, pages: Pages) -> None: ...

    def worked(self) -> None: ...

    def copy(self, into: Tensor, source: Tensor, after: None) -> None:
        into.copy_(source)

    def wait(self, copied: None) -> None: ...

    def close(self) -> None: ...


def link_to(device: torch.device) -> Link:
    return Beside(device) if device.type == "cuda" else AtOnce()
