"""One server for most tests: its fake build fails only for requests that ask for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from omnic.runtime.fake import Fault, Script, write
from tests.assistant import GOLDEN, assistant
from tests.server.running import Server

FAULTS = (
    Fault("think", 0, "request", when="!request"),
    Fault("think", 0, "raise", when="!first"),
    Fault("think", 3, "raise", when="!raise"),
    Fault("think", 3, "memory", when="!memory"),
    Fault("think", 3, "exit", when="!exit"),
    Fault("think", 3, "hang", when="!hang"),
    Fault("speak", 0, "raise", when="!mute"),
    Fault("speak", 3, "raise", when="!cut"),
)
Make = Callable[..., Path]


def make(directory: Path, **script: Any) -> Path:
    """A fake build of the assistant with the generated server beside it; its step log is `log`."""
    build = write(directory, assistant(), Script(**{"faults": FAULTS, "log": str(directory / "log"), **script}))
    shutil.copy(GOLDEN / "server.py", build)
    return build


@pytest.fixture
def build(tmp_path: Path) -> Make:
    return lambda **script: make(tmp_path / "build", **script)


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(make(tmp_path_factory.mktemp("server"), step_seconds=0.002)) as running:
        yield running.ready()


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made
