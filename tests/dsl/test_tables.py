"""The tables that ship: made of the grammar as it is, and not needed."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources

import lark
import pytest

from omnic.dsl import tables

TEXT = "pipeline p {\n  stage a = b.c { k = [1, 2] }  # why\n}\n"


@pytest.fixture
def fresh() -> None:
    tables.parser.cache_clear()
    yield
    tables.parser.cache_clear()


def test_the_tables_are_made_of_the_grammar_as_it_is() -> None:
    shipped = resources.files("omnic.dsl").joinpath(tables.TABLES).read_bytes()
    current = tables.header(tables.grammar())
    assert shipped.partition(b"\n")[0].split()[2:] == current.split()[2:], "run `python -m omnic.dsl.tables`"


def test_the_grammar_is_strict() -> None:
    pytest.importorskip("interegular")
    tables.build(tables.grammar(), strict=True)  # raises for conflicts of rules and collisions of terminals


def test_the_tables_read_as_the_grammar_does() -> None:
    built = tables.build(tables.grammar())
    assert tables.parser().parse(TEXT, start="start") == built.parse(TEXT, start="start")


@pytest.mark.parametrize("content", [b"", b"lark 0.1 grammar 0\nnot a table"])
@pytest.mark.usefixtures("fresh")
def test_without_tables_of_this_lark_the_grammar_is_read(content: bytes, tmp_path, monkeypatch) -> None:
    (tmp_path / tables.GRAMMAR).write_text(tables.grammar())
    if content:
        (tmp_path / tables.TABLES).write_bytes(content)
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    assert tables.parser().parse(TEXT, start="start").data == "start"


def test_nothing_is_unpickled_but_what_ships(tmp_path) -> None:
    code = (
        "import pickle, sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "from omnic.dsl.tables import parser\n"
        "parser()\n"
        "print(*[name for name in opened if name.endswith(('.tmp', '.tables', '.pickle'))])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    (opened,) = run.stdout.split()
    assert opened == str(resources.files("omnic.dsl").joinpath(tables.TABLES))


def test_the_tables_name_the_lark_they_are_of() -> None:
    assert tables.header("").split()[:2] == [b"lark", lark.__version__.encode()]
