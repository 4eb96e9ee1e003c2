"""How this process holds on to memory it has used."""

from __future__ import annotations

import ctypes
import os
import sys

_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_KEPT_BYTES = 1 << 30
_MAPPED_BYTES = 32 << 20  # the most that glibc takes on 64 bits


def keep() -> None:
    """Makes glibc keep up to 1 GiB of freed memory for the next tensors, and have one heap for all threads that begin
    from here on. Where the user set one of the variables by which glibc is told such things, all stays as it is.

    By default it gives the top of the heap back with every activation that is freed, and the next forward touches the
    same pages anew: a fifth of a step of a small denoiser (benchmarks/denoise_step.py). A thread's own heap is made of
    pieces of 64 MiB, between whose tensors gaps stay: with it, the peak of a request was up to a third higher
    (benchmarks/peak_memory.py). Does nothing elsewhere.
    """
    if sys.platform != "linux" or any(name in os.environ for name in _VARIABLES):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has none
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_ARENA_MAX, 1)
