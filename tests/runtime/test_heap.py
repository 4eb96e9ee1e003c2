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
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MALLOC_") and n != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, how], env=environment | variables, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_a_forward_touches_no_page_that_the_one_before_touched() -> None:
    assert _faults("kept") < 100  # of 40,960 pages


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"])
def test_what_the_user_set_stays(variable: str) -> None:
    value = "glibc.malloc.mmap_threshold=65536" if variable == "GLIBC_TUNABLES" else "65536"
    assert _faults("kept", **{variable: value}) > 10_000


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's heap")
def test_so_do_heaps_of_threads() -> None:
    environment = {**os.environ, "MALLOC_ARENA_MAX": "4"}
    done = subprocess.run([sys.executable, "-c", _PLACE], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"


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
