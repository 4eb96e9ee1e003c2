"""A build directory is put in place whole, and nothing in it that is not ours is lost."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from omnic.codegen.files import Occupied, digests, put

FIRST = {"pipeline.py": b"one", "python/glue.py": b"glue", "omnic.lock": b"{}"}
SECOND = {"pipeline.py": b"two", "omnic.lock": b"{}"}


def contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def made(files: dict[str, bytes]) -> dict[str, str]:
    return {name: d for name, d in digests(files).items() if name != "omnic.lock"}


def test_a_new_directory_holds_exactly_the_files(tmp_path: Path) -> None:
    put(FIRST, tmp_path / "deep" / "out", {})
    assert contents(tmp_path / "deep" / "out") == FIRST


def test_a_second_build_replaces_and_removes_what_the_first_made(tmp_path: Path) -> None:
    put(FIRST, tmp_path / "out", {})
    put(SECOND, tmp_path / "out", made(FIRST))
    assert contents(tmp_path / "out") == SECOND


def test_foreign_files_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(FIRST, out, {})
    (out / "notes").mkdir()
    (out / "notes" / "mine.txt").write_bytes(b"mine")
    (out / "python" / "more.py").write_bytes(b"more")
    (out / "latest").symlink_to("/nowhere")
    put(SECOND, out, made(FIRST))
    assert contents(out) == SECOND | {"notes/mine.txt": b"mine", "python/more.py": b"more"}
    assert (out / "latest").readlink() == Path("/nowhere")


def test_an_edited_file_stops_the_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(FIRST, out, {})
    (out / "pipeline.py").write_bytes(b"edited by hand")
    with pytest.raises(Occupied, match=r"pipeline\.py was edited"):
        put(SECOND, out, made(FIRST))
    assert contents(out)["pipeline.py"] == b"edited by hand"


def test_a_foreign_file_in_the_way_stops_the_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(SECOND, out, {})
    (out / "python").mkdir()
    (out / "python" / "glue.py").write_bytes(b"mine")
    with pytest.raises(Occupied, match="in the way"):
        put(FIRST, out, made(SECOND))
    assert contents(out)["python/glue.py"] == b"mine"


@pytest.mark.parametrize("name", ["python", "pipeline.py/notes"])
def test_a_foreign_file_where_a_directory_belongs_stops_the_build_too(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    put({"plan.md": b"plan"}, out, {})
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).write_bytes(b"mine")
    with pytest.raises(Occupied, match="in the way"):
        put(FIRST, out, made({"plan.md": b"plan"}))
    assert contents(out) == {"plan.md": b"plan", name: b"mine"}


def test_a_directory_in_place_of_a_generated_file_counts_as_an_edit(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(FIRST, out, {})
    (out / "pipeline.py").unlink()
    (out / "pipeline.py").mkdir()
    with pytest.raises(Occupied, match=r"pipeline\.py was edited"):
        put(SECOND, out, made(FIRST))


def test_foreign_files_outlive_a_build_that_cannot_move_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "out", Path.rename
    put(FIRST, out, {})
    (out / "mine.txt").write_bytes(b"mine")

    def refused(path: Path, target: Path) -> Path:
        if path.name == "mine.txt":
            raise PermissionError(errno.EPERM, "not permitted", str(path))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(OSError, match="cannot be moved into the new build") as told:
        put(SECOND, out, made(FIRST))
    kept = Path(str(told.value.strerror).rpartition(" in ")[2])
    assert (kept / "mine.txt").read_bytes() == b"mine"
    assert contents(out) == SECOND


def test_a_link_to_a_build_stays_one(tmp_path: Path) -> None:
    put(FIRST, tmp_path / "real", {})
    (tmp_path / "out").symlink_to("real")
    put(SECOND, tmp_path / "out", made(FIRST))
    assert (tmp_path / "out").readlink() == Path("real")
    assert contents(tmp_path / "real") == SECOND
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "real"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_no_build_is_left_alone(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "file":
        out.write_bytes(b"mine")
    else:
        out.mkdir()
        (out / "mine").write_bytes(b"mine")
    with pytest.raises(Occupied):
        put(FIRST, out, {})
    assert contents(tmp_path) in ({"out": b"mine"}, {"out/mine": b"mine"})


def test_a_failure_while_writing_leaves_the_old_build(tmp_path: Path) -> None:
    out = tmp_path / "out"
    put(FIRST, out, {})
    with pytest.raises(TypeError):
        put({"pipeline.py": b"two", "manifest.json": None}, out, made(FIRST))  # type: ignore[dict-item]
    assert contents(out) == FIRST
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
