"""The plan against the process: weights and KV cache to the byte, the whole within a tenth."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from omnic.catalog.resolve import ModelSource
from omnic.ir.pipeline import Stage
from omnic.target import machine_cores
from tests.passes.planning import plan

ROOT = Path(__file__).parents[2]
ASSISTANT = ROOT / "pipelines" / "assistant.omni"


def arguments(stage: Stage) -> dict[str, object]:
    """How the runtime constructs the stage."""
    how = {name: setting.value for name, setting in stage.how if name != "on"}
    return how | {"threads": how["threads"] or machine_cores()}


@pytest.mark.slow
def test_what_the_assistant_takes_is_what_was_planned():
    planned = plan(ASSISTANT.read_text())
    pipeline = planned.pipeline
    models = []
    for declared in pipeline.models:
        source, found = ModelSource.parse(declared.source), planned.context.models[declared.name]
        record = {"name": declared.name, "source": source.kind, "location": source.name, "revision": found.revision}
        record |= {name: getattr(found, name) for name in ("family", "format", "config")}
        models.append(record | {"files": [asdict(f) for f in found.files]})
    given = {"models": models} | {s.name: arguments(s) for s in pipeline.stages}
    done = subprocess.run(
        [sys.executable, "-m", "tests.passes.hosting"],
        input=json.dumps(given), capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    took = json.loads(done.stdout)
    (cpu,) = pipeline.devices
    items = dict(cpu.items)
    assert items["think weights"] == took["weights"]
    assert items["think kv"] == took["kv"]
    assert cpu.planned_bytes == pytest.approx(took["peak"], rel=0.1)
