"""The command line as tests use it: in this process, or as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from omnic.__main__ import run


class Done(NamedTuple):
    status: int
    out: str
    err: str


Omnic = Callable[..., Done]


@pytest.fixture
def omnic(capsys: pytest.CaptureFixture[str]) -> Omnic:
    """Runs one command line in this process."""

    def call(*argv: str | Path) -> Done:
        status = run([str(word) for word in argv])
        out, err = capsys.readouterr()
        return Done(status, out, err)

    return call


@pytest.fixture
def process() -> Omnic:
    """Runs one command line as users do."""

    def call(*argv: str | Path, **options: object) -> Done:
        command = [sys.executable, "-m", "omnic", *map(str, argv)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload]
        return Done(done.returncode, done.stdout, done.stderr)

    return call
