"""Committed builds, and how they are made again: `python -m tests.codegen.golden` writes them; review the diff.

Versions and weight digests are fixed, so that a golden build depends on omnic's own code alone.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from omnic import driver
from omnic.diagnostics import Sink, render

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
SOURCES = {
    "assistant": ROOT / "pipelines" / "assistant.omni",
    "relay": GOLDEN / "source" / "relay.omni",
}
VERSIONS = driver.Versions(omnic="0.0.0", packages={"torch": "2.0.0"}, digests={"lm": {}, "voice": {}})


def emitted(name: str) -> dict[str, bytes]:
    """Every file of a build that travels, `omnic.lock` included."""
    sink = Sink()
    planned = (seen := driver.front(SOURCES[name], sink)) and driver.plan(seen, sink)
    assert planned is not None, render(sink.diagnostics)
    lock, files = driver.emit(planned, VERSIONS)
    return {**files, "omnic.lock": lock.dump()}


def write() -> None:
    for name in SOURCES:
        shutil.rmtree(GOLDEN / name, ignore_errors=True)
        for path, content in emitted(name).items():
            file = GOLDEN / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


if __name__ == "__main__":
    write()
