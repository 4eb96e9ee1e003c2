"""Keys that every stage has, parts that come with omnic, and stages written in Python."""

from __future__ import annotations

import sys

import pytest

from omnic.catalog.keys import COMMON_KEYS, common_key
from omnic.catalog.resolve import CatalogError, python_part, standard_part
from omnic.contract.types import Type, parse_type
from omnic.expr import Quantity

LANGUAGE = (
    "precision", "engine", "place", "replicas", "isolate", "tensor_parallel", "sequence_parallel", "cfg_parallel",
    "vae_parallel", "split", "offload", "kv_cache", "slots", "batch", "mode", "cache", "loras", "fuse",
    "fuse_scale", "buckets", "deterministic",
)  # fmt: skip


def test_the_keys_are_those_of_the_language():
    assert tuple(k.name for k in COMMON_KEYS) == LANGUAGE


def test_a_key_fits_some_kinds_of_stage():
    assert common_key("slots", "generate") is not None
    assert common_key("slots", "decode") is None
    assert common_key("place", "python") is not None


def test_a_key_or_a_value_that_comes_later_says_why():
    precision, split = common_key("precision", "generate"), common_key("split", "generate")
    assert precision.refusal("bf16") is None
    assert precision.refusal("int4") == "omnic holds weights in bf16, fp32 or fp8; other precisions come later"
    assert split.refusal("prefill_decode") == "omnic cannot run prefill and decode apart yet"
    assert common_key("prefill.tensor_parallel", "generate").unsupported == split.unsupported
    assert common_key("prefill.tensor_parallel", "decode") is None
    assert common_key("prefill.nonsense", "generate") is None


def test_the_rate_of_resample_is_in_its_type():
    part = standard_part("resample")
    assert str(part.outputs[0].type) == "audio"
    assert str(part.with_types({"rate": Quantity(16, "kHz")}).outputs[0].type) == "audio<16kHz>"
    assert part.key("rate").required


def test_mux_comes_later_and_there_is_nothing_else():
    assert standard_part("mux").unsupported == "omnic has no video stages yet"
    assert standard_part("nothing") is None


@pytest.fixture
def glue(tmp_path):
    (tmp_path / "glue.py").write_text(
        "import os; os._exit(3)  # checking must never run this\n"
        "def shout(text, *, loud=True):\n    '''Upper case.\n\n    More.'''\n"
        "def pair(a, b): ...\nasync def later(text): ...\ndef anything(**ports): ...\ndef first(text, /): ...\n"
    )
    return tmp_path


def part(glue, function, *ports):
    inputs = [(name, Type("text")) for name in ports]
    return python_part("glue.py", function, inputs, [("text", Type("text"))], base=glue)


def test_a_python_stage_is_read_never_imported(glue):
    made = part(glue, "shout", "text")
    assert (made.name, made.kind, made.doc) == ("glue.py:shout", "python", "Upper case.")
    assert "glue" not in sys.modules
    assert [p.name for p in part(glue, "anything", "x", "y").inputs] == ["x", "y"]
    assert part(glue, "later", "text").kind == "python"  # an async function is one too


def test_an_optional_input_is_a_port_that_may_stay_unwired(glue):
    made = python_part(
        "glue.py", "pair", [("a", Type("text")), ("b", parse_type("text?"))], [("c", Type("text"))], base=glue
    )
    assert [(p.name, p.required, str(p.type)) for p in made.inputs] == [("a", True, "text"), ("b", False, "text")]


@pytest.mark.parametrize(
    ("file", "function", "ports", "message"),
    [
        ("none.py", "shout", ("text",), "there is no file none.py"),
        ("glue.py", "whisper", ("text",), "glue.py has no function `whisper`"),
        ("glue.py", "shout", ("words",), "`shout` of glue.py has no parameter `words`"),
        ("glue.py", "pair", ("a",), "`pair` of glue.py also needs `b`"),
        ("glue.py", "first", ("text",), "`first` of glue.py has no parameter `text`"),
        ("broken.py", "f", (), "broken.py is not Python: expected ':' (line 1)"),
        ("deep.py", "f", (), "deep.py is nested too deeply to be read"),
        ("nul.py", "f", (), "nul.py is not Python: source code string cannot contain null bytes"),
        ("glue.txt", "f", (), "glue.txt is not a `.py` file"),
        ("a\0b.py", "f", (), "a\0b.py is not Python: embedded null byte"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused(glue, file, function, ports, message):
    (glue / "broken.py").write_text("def f()\n")
    (glue / "deep.py").write_text(f"def f(): return {'-' * 100_000}1\n")
    (glue / "nul.py").write_text("def f(): return '\0'\n")
    with pytest.raises(CatalogError) as error:
        python_part(file, function, [(p, Type("text")) for p in ports], [("text", Type("text"))], base=glue)
    assert (error.value.id, error.value.message) == ("bad-python-stage", message)


@pytest.mark.parametrize("line", ["import helper", "from helper.deep import f", "from . import helper", "import kit.x"])
def test_a_module_beside_the_file_would_stay_behind(glue, line):
    (glue / "helper.py").write_text("f = 1\n")
    (glue / "kit").mkdir()
    (glue / "kit/__init__.py").touch()
    (glue / "glue.py").write_text(f"import json\ndef shout(text):\n    {line}\n")
    with pytest.raises(CatalogError) as error:
        part(glue, "shout", "text")
    assert error.value.id == "not-supported-yet"
