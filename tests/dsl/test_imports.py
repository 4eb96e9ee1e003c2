"""Checking starts fast: nothing heavy is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
HEAVY = {"typer", "rich", "msgspec", "torch", "jinja2", "transformers", "numpy", "pydantic", "hibari", "gguf"}


@pytest.mark.parametrize(
    "code",
    [
        "import omnic.dsl.parse, omnic.dsl.check, omnic.dsl.lower, omnic.dsl.fmt",
        "from omnic.cli.language import check; check(('pipelines/assistant.omni',), 'concise')",
    ],
)
def test_checking_imports_nothing_heavy(code: str) -> None:
    shown = f"{code}\nimport sys\nprint('loaded:', *sorted({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.splitlines()[-1].strip() == "loaded:"
