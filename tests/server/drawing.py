"""Servers on fakes that draw and film, and what tests ask of them."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnic.manifest import Manifest
from omnic.runtime.fake import Fault, Script, write
from omnic.runtime.picture_files import read
from tests.assistant import GOLDEN
from tests.server.running import Server

GENERATIONS, EDITS, VIDEOS = "/v1/images/generations", "/v1/images/edits", "/v1/videos"
FAULTS = (
    Fault("paint", 0, "request", when="!request"),
    Fault("paint", 2, "raise", when="!raise"),
    Fault("paint", 2, "memory", when="!memory"),
    Fault("paint", 2, "exit", when="!exit"),
    Fault("film", 0, "request", when="!request"),
    Fault("film", 2, "raise", when="!raise"),
    Fault("film", 2, "memory", when="!memory"),
    Fault("film", 2, "exit", when="!exit"),
)


def make(directory: Path, content: Manifest, **script: Any) -> Path:
    """A fake build of a pipeline with a server beside it; its step log is `log`."""
    build = write(directory, content, Script(**{"faults": FAULTS, "log": str(directory / "log"), **script}))
    shutil.copy(GOLDEN / "server.py", build)
    return build


def pixels(b64_json: str) -> NDArray[np.uint8]:
    return read(io.BytesIO(base64.b64decode(b64_json)), "answer", 1 << 24)


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Server-sent events; the name of each is its type."""
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            assert name == data.get("type", "error")
            yield data


def steps(server: Server, seed: int, stage: str = "paint") -> int:
    """How many steps a request has made, by the log of the fake."""
    log = server.build / "log"
    return sum(line.startswith(f"{stage} {seed} ") for line in log.read_text().splitlines()) if log.exists() else 0
