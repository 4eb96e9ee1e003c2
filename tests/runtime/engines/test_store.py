"""The cache of engines: when one is used, when it is built again, and why."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from omnic.runtime.engines import artefact
from omnic.runtime.engines.artefact import BLOB, ENTRY, Foreign
from omnic.runtime.engines.builder import Settings
from omnic.runtime.engines.fake import Reference
from tests.runtime.engines.toys import obtained


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def test_what_is_there_is_not_built_again(tmp_path: Path) -> None:
    builder = Reference()
    first, again = (obtained(builder, tmp_path / name, 2, 9) for name in "ab")
    assert (first.how, again.how, len(builder.built)) == ("built", "found", 1)
    assert again.artefact == first.artefact
    assert first.artefact.path.name.startswith("toy-stage.rows-")
    assert not first.why


def test_another_batch_and_another_precision_are_other_engines(tmp_path: Path) -> None:
    """An engine for a batch of one is not one for two (pytorch/TensorRT #3148)."""
    builder = Reference()
    for folder, rows, dtype in (("a", 1, torch.float32), ("b", 2, torch.float32), ("c", 2, torch.bfloat16)):
        obtained(builder, tmp_path / folder, rows, dtype=dtype)
    assert len(builder.built) == 3
    for folder, rows, dtype in (("d", 1, torch.float32), ("e", 2, torch.float32), ("f", 2, torch.bfloat16)):
        assert obtained(builder, tmp_path / folder, rows, dtype=dtype).how == "found"


@pytest.mark.parametrize(
    ("builder", "why"),
    [
        (Reference(architecture="sm_120"), "it is of architecture sm_89, and wanted is sm_120"),
        (Reference(version="2"), "it is of version 1, and wanted is 2"),
        (Reference(name="other"), "it is of builder reference, and wanted is other"),
        (Reference(refits=False), "it is of settings level = 3, refit = 1, workspace_bytes = 0, and wanted is "
         "level = 3, refit = 0, workspace_bytes = 0"),
    ],
)  # fmt: skip
def test_for_another_gpu_builder_version_or_setting_it_says_what_differs(
    builder: Reference, why: str, tmp_path: Path
) -> None:
    obtained(Reference(), tmp_path / "a", 2, 9)
    made = obtained(builder, tmp_path / "b", 2, 9)
    assert made.how == "built"
    assert made.why.endswith(f" is of no use: {why}")


def test_settings_and_ranges_are_part_of_the_key(tmp_path: Path) -> None:
    builder = Reference()
    obtained(builder, tmp_path / "a", 2, 9)
    assert "[2..9, 8], and wanted is arg0 float32[2..10, 8]" in obtained(builder, tmp_path / "b", 2, 10).why
    assert obtained(builder, tmp_path / "c", 2, 9, settings=Settings(level=5)).how == "built"
    assert len(builder.built) == 3


def test_other_weights_of_the_same_graph_are_refitted(tmp_path: Path) -> None:
    builder = Reference()
    first = obtained(builder, tmp_path / "a", 2, 9)
    other = obtained(builder, tmp_path / "b", 2, 9, seed=1)
    assert (other.how, len(builder.built), builder.refitted) == ("refitted", 1, 1)
    assert other.artefact.weights != first.artefact.weights
    assert obtained(builder, tmp_path / "c", 2, 9).how == "found"  # the first stays
    rigid = Reference(refits=False)
    obtained(rigid, tmp_path / "d", 2, 9)
    assert obtained(rigid, tmp_path / "e", 2, 9, seed=1).how == "built"


@pytest.mark.parametrize("fault", ["truncated", "changed", "gone", "no-entry", "damaged-entry", "other-layout"])
def test_what_is_not_whole_is_built_again_and_says_why(fault: str, tmp_path: Path) -> None:
    builder = Reference()
    path = obtained(builder, tmp_path / "a", 2, 9).artefact.path
    whole = (path / BLOB).read_bytes()
    entry = json.loads((path / ENTRY).read_text())
    match fault:
        case "truncated":
            (path / BLOB).write_bytes(whole[:100])
            why = f"has 100 bytes, and should have {len(whole)}"
        case "changed":
            (path / BLOB).write_bytes(whole[:-1] + b"!")
            why = f"and should have {entry['sha256'][:12]}"
        case "gone":
            (path / BLOB).unlink()
            why = "cannot be read: No such file"
        case "no-entry":
            (path / ENTRY).unlink()
            why = "holds no engine: No such file"
        case "damaged-entry":
            (path / ENTRY).write_text("{}")
            why = "has layout None, and this omnic reads 1"
        case _:
            (path / ENTRY).write_text(json.dumps(entry | {"version": 9}))
            why = "has layout 9, and this omnic reads 1"
    made = obtained(builder, tmp_path / "b", 2, 9)
    assert (made.how, len(builder.built)) == ("built", 2)
    assert why in made.why
    assert made.artefact.blob() == whole
    assert obtained(builder, tmp_path / "c", 2, 9).how == "found"


@pytest.mark.parametrize(
    ("what", "was"), [("architecture", "sm_75"), ("version", "0.9"), ("builder", "tensorrt")]
)  # fmt: skip
def test_a_foreign_engine_is_built_again_and_refused_where_it_would_run(what: str, was: str, tmp_path: Path) -> None:
    """One that moved between kinds of GPU or versions is told by both values, before it is loaded
    (NVIDIA/TensorRT #2176)."""
    builder = Reference()
    found = obtained(builder, tmp_path / "a", 2, 9).artefact
    held = tmp_path / "build" / found.path.name
    shutil.copytree(found.path, held)
    for path in (held, found.path):
        entry = json.loads((path / ENTRY).read_text())
        here = entry["key"][what]
        entry["key"][what] = was
        (path / ENTRY).write_text(json.dumps(entry))
    with pytest.raises(Foreign) as refused:
        artefact.read(held).require(builder=builder.name, version=builder.version, architecture=builder.architecture)
    assert str(refused.value) == f"{held} is an engine for {what} {was}, and here it is {here}: build again"
    assert builder.loaded == 0
    made = obtained(builder, tmp_path / "b", 2, 9)
    assert (made.how, made.why) == ("built", f"it is of {what} {was}, and wanted is {here}")
