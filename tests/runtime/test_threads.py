"""How torch's threads wait: asleep, unless torch was imported before anything of omnic could say so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.assistant import GOLDEN
from tests.runtime.talking import loaded, tiny

SHOW = "; import os; print(os.environ.get('OMP_WAIT_POLICY'))"


def policy(code: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | variables
    command = [sys.executable, "-c", code + SHOW]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_a_generated_pipeline_that_is_imported_has_threads_that_sleep() -> None:
    assert (
        policy(f"import sys; sys.path.insert(0, {str(GOLDEN)!r}); import pipeline; sys.modules['torch']") == "PASSIVE"
    )


@pytest.mark.parametrize("module", ["worker", "workers", "convert", "entry", "engine", "server.app"])
def test_so_has_every_way_into_the_runtime(module: str) -> None:
    assert policy(f"import omnic.runtime.{module}") == "PASSIVE"


def test_what_the_user_said_stays() -> None:
    assert policy("import omnic.runtime", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"


def test_after_torch_it_would_be_no_use() -> None:
    assert policy("import torch, omnic.runtime") == "None"


def test_then_loading_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY")
    with pytest.warns(RuntimeWarning, match="OMP_WAIT_POLICY=PASSIVE"), loaded(tiny()):
        pass
