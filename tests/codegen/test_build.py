"""Builds: the same from the same, held by their lock, refused when stale."""

from __future__ import annotations

import ast
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from omnic import driver, manifest
from omnic.codegen.files import Occupied
from omnic.diagnostics import Sink, render
from omnic.runtime import lock
from omnic.runtime.errors import Stale
from tests.catalog.checkpoints import write_checkpoint

SOURCE = """\
pipeline small {
  model lm = path("weights")
  input messages: chat<text, tokens = 64>
  output reply: text
  param max_tokens: int = 16 in 1..32
  stage think = lm.generate { max_tokens = max_tokens }
  messages -> think.messages
  think.text -> reply
  serve chat.completions
}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    write_checkpoint(tmp_path / "src" / "weights")
    path = tmp_path / "src" / "small.omni"
    path.write_text(SOURCE)
    return path


def build(source: Path, out: Path, **options: object) -> driver.BuildResult:
    sink = Sink()
    result = driver.build(source, out, sink, **options)  # type: ignore[arg-type]  # options are driver.build's own
    assert result is not None, render(sink.diagnostics)
    return result


def contents(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def flip_a_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))


def test_two_builds_are_byte_identical_wherever_they_lie(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "one")
    build(source, tmp_path / "deeper" / "two")
    one, two = contents(tmp_path / "one"), contents(tmp_path / "deeper" / "two")
    assert one.keys() == two.keys()
    assert {n for n in one if one[n] != two[n]} <= {"engines.lock"}


def test_building_again_changes_nothing(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build(source, out).changed
    before = contents(out)
    assert not build(source, out).changed
    assert contents(out) == before


def test_a_fresh_build_verifies(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "out")
    lock.verify(tmp_path / "out")


def test_check_and_plan_read_no_weight_and_a_build_reads_them_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, read = source.parent / "weights/model.safetensors", []

    def digest(file: Any, algorithm: str) -> Any:
        read.append(Path(file.name))
        return real(file, algorithm)

    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", digest)
    sink = Sink()
    front = driver.front(source, sink)
    assert front is not None
    assert driver.plan(front, sink) is not None
    assert read == []
    build(source, tmp_path / "one")
    build(source, tmp_path / "two")
    lock.verify(tmp_path / "two")
    assert read.count(weights) == 1


def test_a_build_names_the_digest_of_the_file_as_it_lies(source: Path, tmp_path: Path) -> None:
    """Also where its lines end in CRLF, behind a byte order mark."""
    source.write_bytes(b"\xef\xbb\xbf" + source.read_bytes().replace(b"\n", b"\r\n"))
    build(source, tmp_path / "out")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert manifest.read(tmp_path / "out").source_sha256 == digest
    assert lock.read(tmp_path / "out").sources == {"small.omni": digest}
    assert f"(sha256 {digest[:16]})" in (tmp_path / "out/pipeline.py").read_text()


DRIFTS = {
    "a line of source": (lambda source: edit(source, "1..32", "1..31"), "small.omni changed"),
    "a weight byte": (lambda source: flip_a_byte(source.parent / "weights/model.safetensors"), "model.safetensors"),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_a_stale_build_is_refused_in_one_line(drift: str, source: Path, tmp_path: Path) -> None:
    change, says = DRIFTS[drift]
    build(source, tmp_path / "out")
    change(source)
    with pytest.raises(Stale) as refused:
        lock.verify(tmp_path / "out")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "small.omni" in str(refused.value)


@pytest.mark.parametrize("drift", DRIFTS)
def test_locked_refuses_drift_and_leaves_the_build(drift: str, source: Path, tmp_path: Path) -> None:
    change, says = DRIFTS[drift]
    out = tmp_path / "out"
    build(source, out)
    before = contents(out)
    build(source, out, locked=True)
    change(source)
    with pytest.raises(Stale, match=says):
        build(source, out, locked=True)
    assert contents(out) == before
    assert build(source, out).changed


def test_versions_are_held_too(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    old = driver.Versions(packages={"torch": "1.0.0"})
    build(source, out, versions=old)
    with pytest.raises(Stale, match=r"package torch changed: was 1\.0\.0, is 2\.0\.0"):
        build(source, out, locked=True, versions=driver.Versions(packages={"torch": "2.0.0"}))
    with pytest.raises(Stale, match=r"built with torch 1\.0\.0, found"):
        lock.verify(out)


def test_another_omnic_is_refused(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "out", versions=driver.Versions(omnic="0.0.1"))
    with pytest.raises(Stale, match=r"built by omnic 0\.0\.1"):
        lock.verify(tmp_path / "out")


def test_locked_needs_a_lock(source: Path, tmp_path: Path) -> None:
    with pytest.raises(Stale, match=r"no omnic\.lock"):
        build(source, tmp_path / "out", locked=True)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"lock": 1}', b'{"lock": 99}', b"null", b"\xff", b"[" * 100_000]
)
def test_a_damaged_lock_is_one_line(damage: bytes, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(source, out)
    (out / "omnic.lock").write_bytes(damage)
    with pytest.raises(Stale, match=r"omnic\.lock"):
        lock.verify(out)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"models": {}}, "does not record model lm"),
        ({"models": {"lm": {"source": "x", "revision": None, "files": {"a": 3}}}}, "damaged"),
        ({"models": {"lm": {}}}, "damaged"),
        ({"sources": {"small.omni": None}}, "damaged"),
        ({"packages": 3}, "damaged"),
        ({"settings": "think.slots=1"}, "damaged"),
        ({"engine": "x"}, "engine mean nothing"),
    ],
)
def test_a_lock_that_holds_something_else_is_one_line(
    change: dict[str, object], says: str, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    build(source, out)
    content = json.loads((out / "omnic.lock").read_text())
    (out / "omnic.lock").write_text(json.dumps(content | change))
    with pytest.raises(Stale, match=says) as refused:
        lock.verify(out)
    assert "\n" not in str(refused.value)


def test_an_edited_build_is_not_written_over(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(source, out)
    (out / "pipeline.py").write_text("# mine\n")
    edit(source, "1..32", "1..31")
    with pytest.raises(Occupied, match="edited"):
        build(source, out)
    assert (out / "pipeline.py").read_text() == "# mine\n"


def test_a_build_moved_away_still_verifies(source: Path, tmp_path: Path) -> None:
    """On another machine neither the source nor `engines.lock` need be there."""
    build(source, tmp_path / "out")
    moved = tmp_path / "src" / "moved"
    (tmp_path / "out").rename(moved)
    (moved / "engines.lock").unlink()
    (tmp_path / "src" / "weights").rename(moved / "weights")
    source.unlink()
    lock.verify(moved)


def test_a_change_of_the_target_file_makes_a_build_stale(source: Path, tmp_path: Path) -> None:
    profile = source.parent / "box.json"
    profile.write_text('{"host": {"memory_gib": 64}}')
    build(source, tmp_path / "out", target=str(profile))
    lock.verify(tmp_path / "out")
    profile.write_text('{"host": {"memory_gib": 32}}')
    with pytest.raises(Stale, match=r"box\.json changed"):
        lock.verify(tmp_path / "out")


# --- what a build may be made of --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ['we"""ird', "new\nline", "back\\\\slash\\", "\x1b[31mred", "{{ x }}"])
def test_the_name_of_a_source_cannot_break_what_is_generated(name: str, source: Path, tmp_path: Path) -> None:
    odd = source.rename(source.with_name(f"{name}.omni"))
    build(odd, tmp_path / "out")
    for file in ("pipeline.py", "server.py"):
        ast.parse((tmp_path / "out" / file).read_text())
    lock.verify(tmp_path / "out")


# --- fields of requests that several things share ---------------------------------------------------------------------


def generated(source: Path, out: Path, text: str) -> str:
    source.write_text(text)
    build(source, out)
    return (out / "pipeline.py").read_text()


def fields(out: Path) -> dict[str, dict[str, Any]]:
    (endpoint,) = json.loads((out / "manifest.json").read_bytes())["endpoints"]
    return {field["name"]: field for field in endpoint["fields"]}


def test_a_param_that_is_the_seed_is_the_one_seed_there_is(source: Path, tmp_path: Path) -> None:
    text = SOURCE.replace("param", "param seed: int = 7 in 1..99\n  param", 1)
    text = text.replace("{ max_tokens = max_tokens }", "{ max_tokens = max_tokens, seed = seed }")
    made = generated(source, tmp_path / "out", text)
    assert "seed: int = 7," in made
    assert made.count("seed: int") == 1
    field = fields(tmp_path / "out")["seed"]
    assert (field["target"], field["argument"], field["default"], field["domain"]) == ("seed", "seed", 7, "1..99")


def test_stages_with_defaults_of_their_own_keep_them(source: Path, tmp_path: Path) -> None:
    write_checkpoint(source.parent / "warm")
    (source.parent / "warm/generation_config.json").write_text('{"do_sample": true, "temperature": 0.7}')
    text = SOURCE.replace("output", 'model warm = path("warm")\n  output second: text\n  output', 1)
    stages = """
      stage tell = python("tell.py:tell", fn(text: text) -> (messages: chat<text>))
      stage again = warm.generate
      think.text -> tell.text
      tell.messages -> again.messages
      again.text -> second
      serve chat.completions { text = second }
    """
    (source.parent / "tell.py").write_text("def tell(text): return [{'role': 'user', 'content': text}]\n")
    made = generated(source, tmp_path / "out", text.replace("  serve chat.completions", stages))
    assert "temperature: float | None = None," in made
    assert "temperature=0.2 if temperature is None else temperature," in made
    assert "temperature=0.7 if temperature is None else temperature," in made
    assert fields(tmp_path / "out")["temperature"]["default"] is None


def test_a_param_that_rules_alone_read_is_held_too(source: Path, tmp_path: Path) -> None:
    text = SOURCE.replace("param", "param budget: int = 20 in 1..99\n  require max_tokens <= budget\n  param", 1)
    made = generated(source, tmp_path / "out", text)
    assert "RULE_0.require(budget=budget, max_tokens=max_tokens)" in made
    assert fields(tmp_path / "out")["budget"]["target"] == "param budget"


def test_a_param_that_may_be_left_out_is_held_where_it_is_there(source: Path, tmp_path: Path) -> None:
    text = SOURCE.replace("param", "param least: int? = none in 1..9\n  require least == none or least < 5\n  param", 1)
    made = generated(source, tmp_path / "out", text)
    assert "if least is not None:\n            LEAST.require(" in made


def test_a_param_by_the_name_of_an_open_key_brings_its_own_default(source: Path, tmp_path: Path) -> None:
    text = SOURCE.replace("param", "param top_k: int = 5 in 0..9\n  require top_k < 8\n  param", 1)
    assert "top_k: int = 5," in generated(source, tmp_path / "out", text)


# --- several at once --------------------------------------------------------------------------------------------------


def test_builds_at_once_each_leave_a_whole_build(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for line in ("1..32", "1..31", "1..30"):  # a first build, then two that change it
        edit(source, "1..32" if line == "1..31" else line if line == "1..32" else "1..31", line)
        with ThreadPoolExecutor(6) as pool:
            results = list(pool.map(lambda _: build(source, out).changed, range(6)))
        assert results.count(True) == 1
        lock.verify(out)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_build_over_a_damaged_lock_says_what_to_do(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(source, out)
    (out / "omnic.lock").write_text("{")
    with pytest.raises(Occupied, match=r"omnic\.lock is damaged .*: remove it"):
        build(source, out)
    with pytest.raises(Stale, match=r"omnic\.lock is damaged"):
        build(source, out, locked=True)


def test_what_a_cache_remembers_wrongly_is_read_again(source: Path, tmp_path: Path) -> None:
    build(source, tmp_path / "out")
    notes = list((tmp_path / "cache/digests").iterdir())
    for note in notes:
        note.write_text("cut")
    lock.verify(tmp_path / "out")
    assert all(len(note.read_text()) == 64 for note in notes)
