"""Freed memory is kept for the next tensors."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys, torch
from omnic.runtime import heap
if sys.argv[1] == "kept":
    heap.keep()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        a, b = torch.ones(1 << 20), torch.ones(1 << 20)  # 4 MiB each: freed together, the top of the heap goes back
        del a, b
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def _faults(how: str, **variables: str) -> int:
    environment = {name: value for name, value in os.environ.items() if name not in ("MALLOC_TRIM_THRESHOLD_",)}
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, how], env=environment | variables, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_a_forward_touches_no_page_that_the_one_before_touched() -> None:
    assert _faults("kept") < 100  # of 40,960 pages


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_what_the_user_set_stays() -> None:
    assert _faults("kept", MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="65536") > 10_000


_PLACE = """
import re, threading, torch
from omnic.runtime import heap
heap.keep()
def place():
    at = torch.ones(1 << 18).data_ptr()
    maps = [re.match("([0-9a-f]+)-([0-9a-f]+)", line) for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
    print(any(int(m[1], 16) <= at < int(m[2], 16) for m in maps))
thread = threading.Thread(target=place)
thread.start()
thread.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_a_thread_that_begins_later_has_no_heap_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", _PLACE], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
