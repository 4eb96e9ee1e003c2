"""Generated pipelines, as the runtime finds and loads them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from omnic.manifest import ManifestError
from omnic.runtime.fake import Script, write
from omnic.runtime.pipeline import generated
from tests.assistant import assistant


def test_two_builds_of_one_pipeline_are_two_pipelines(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, assistant(), Script(step_seconds=n)) for n, name in enumerate(("one", "two"))]
    classes = [generated(path, "Assistant") for path in paths]

    async def loaded(which: int) -> Path:
        async with classes[which].load() as pipeline:
            return pipeline.build.path

    assert [asyncio.run(loaded(which)) for which in (0, 1)] == paths


def test_a_build_without_its_module_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "build", assistant())
    (path / "pipeline.py").unlink()
    with pytest.raises(ManifestError, match=r"has no pipeline\.py"):
        generated(path, "Assistant")


def test_a_module_that_does_not_import_is_not_kept(tmp_path: Path) -> None:
    path = write(tmp_path / "build", assistant())
    (path / "pipeline.py").write_text("open('/nowhere/to/be/found')\n")
    before = set(sys.modules)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        generated(path, "Assistant")
    assert set(sys.modules) <= before
