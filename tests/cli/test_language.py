"""`omnic check` and `omnic fmt`: what is printed where, and the status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Omnic

CLEAN = """\
pipeline small {
  model lm = random("llama", seed = 0)

  input  messages: chat<text>
  output reply: text

  stage think = lm.generate

  messages   -> think.messages
  think.text -> reply

  serve chat.completions
}
"""
WRONG = CLEAN.replace("think.text", "think.txet")


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    file = tmp_path / "clean.omni"
    file.write_text(CLEAN)
    return file


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.omni"
    file.write_text(WRONG)
    return file


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_clean_file(clean: Path, omnic: Omnic) -> None:
    assert omnic("check", clean) == (0, "1 file checked: no mistakes found\n", "")


def test_a_mistake_is_shown_in_its_source(wrong: Path, omnic: Omnic) -> None:
    done = omnic("check", wrong)
    assert done.status == 1
    assert done.out.startswith("error[unknown-port]: ")
    assert f"--> {wrong}:10:" in done.out
    assert "did you mean `text`?" in done.out
    assert done.out.endswith("\n\n1 file checked: 1 error\n")


def test_several_files_are_all_checked(clean: Path, wrong: Path, omnic: Omnic) -> None:
    done = omnic("check", wrong, clean, wrong)
    assert done.status == 1
    assert done.out.endswith("3 files checked: 2 errors\n")


def test_a_file_that_cannot_be_read_does_not_hide_the_others(wrong: Path, omnic: Omnic) -> None:
    done = omnic("check", "--format", "concise", "nowhere.omni", wrong)
    assert done.status == 2
    assert done.err == "omnic: cannot read nowhere.omni: no such file or directory\n"
    assert done.out.startswith(f"{wrong}:10:")


@pytest.mark.parametrize("form", ["concise", "github"])
def test_formats_of_one_line_a_mistake(form: str, wrong: Path, omnic: Omnic) -> None:
    done = omnic("check", "--format", form, wrong)
    assert done.status == 1
    assert len(done.out.splitlines()) == 1
    assert "unknown-port" in done.out


def test_json_is_json_and_nothing_else(clean: Path, wrong: Path, omnic: Omnic) -> None:
    assert json.loads(omnic("check", "--format=json", clean).out) == []
    found = json.loads(omnic("check", "--format=json", wrong, clean).out)
    assert [(d["id"], d["primary"]["start"]["line"]) for d in found] == [("unknown-port", 10)]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    type_in(monkeypatch, WRONG)
    done = omnic("check", "-", "--format", "concise")
    assert done.status == 1
    assert done.out.startswith("<stdin>:10:")


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_bytes(b"\xef\xbb\xbf" + CLEAN.replace("\n", "\r\n").encode())
    assert omnic("check", file).status == 0


def test_fmt_writes_in_place_and_settles(tmp_path: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_text(CLEAN.replace("  input  ", "      input     ") + "# the end")
    file.chmod(0o640)
    assert omnic("fmt", file) == (0, "", f"formatted {file}\n")
    assert file.read_text() == CLEAN + "# the end\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert omnic("fmt", file) == (0, "", "1 file already formatted\n")


def test_fmt_check_changes_nothing(tmp_path: Path, clean: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_text(CLEAN.replace("  input  ", "\tinput "))
    before = file.read_bytes()
    assert omnic("fmt", "--check", clean, file) == (1, "", f"would change {file}\n")
    assert file.read_bytes() == before


def test_fmt_of_a_file_with_syntax_errors_leaves_it(tmp_path: Path, omnic: Omnic) -> None:
    file = tmp_path / "a.omni"
    file.write_text("pipeline {\n")
    done = omnic("fmt", file)
    assert (done.status, done.out) == (1, "")
    assert f"{file}:1:" in done.err
    assert file.read_text() == "pipeline {\n"


def test_fmt_of_standard_input_prints(monkeypatch: pytest.MonkeyPatch, omnic: Omnic) -> None:
    type_in(monkeypatch, CLEAN.replace("  input  ", "\tinput "))
    assert omnic("fmt", "-") == (0, CLEAN, "")


def test_fmt_follows_a_link(tmp_path: Path, omnic: Omnic) -> None:
    real, link = tmp_path / "real.omni", tmp_path / "link.omni"
    real.write_text(CLEAN.replace("  input  ", "\tinput "))
    link.symlink_to(real)
    omnic("fmt", link)
    assert link.is_symlink()
    assert real.read_text() == CLEAN


def test_fmt_of_a_file_that_may_not_be_written(tmp_path: Path, omnic: Omnic, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.omni"
    file.write_text(CLEAN + "\n\n\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert omnic("fmt", file) == (2, "", f"omnic: cannot write {file}: permission denied\n")
