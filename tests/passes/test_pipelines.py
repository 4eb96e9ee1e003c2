"""Whole pipelines through all passes: what comes out is sound, and its text reads back at every step."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.ir.text import dump, parse
from omnic.ir.verify import verify
from omnic.passes import DEFAULT, history
from tests.passes.planning import ANSWER, plan

HERE = Path(__file__).parent
LM = 'model lm = random("qwen3")'

SPEAK = """\
pipeline speak {
  model voice = pypi("hibari-tts")
  input text: text
  output speech: audio<16kHz>
  param speed: float = 1.0 in 0.5..2.0
  stage say = voice.synthesize { speed = speed }
  stage down = std.resample { rate = 16kHz }
  text -> say.text { stream = sentence }
  say.audio -> down.audio
  down.audio -> speech
  serve audio.speech
}
"""
NESTED = f"""\
pipeline inner {{
  {LM}
  input messages: chat<text, tokens = 512>
  output reply: text
  param most: int = 64 in 1..128
  stage think = lm.generate {{ max_tokens = most }}
  messages -> think.messages
  think.text -> reply
}}
pipeline outer {{
  model voice = pypi("hibari-tts")
  input messages: chat<text, tokens = 512>
  output loud: text
  output speech: audio<24kHz>
  stage answer = inner {{ most = 32 }}
  stage shout = python("glue.py:shout", fn(text: text) -> (text: text))
  stage speak = voice.synthesize
  messages -> answer.messages
  answer.reply -> shout.text
  shout.text -> loud
  shout.text -> speak.text
  speak.audio -> speech
  serve chat.completions, audio.speech {{ input = speak.text }}
}}
deploy here for outer {{ target = cpu, stage answer.think {{ slots = 2 }} }}
"""


@pytest.mark.parametrize(
    ("text", "deploy", "target"),
    [(ANSWER, None, None), (ANSWER, None, "h200*2"), (SPEAK, None, None), (SPEAK, None, "l4"), (NESTED, "here", None)],
)
def test_every_step_is_sound_and_reads_back(text, deploy, target):
    lowered = plan(text, deploy=deploy, target=target, base=HERE, passes=())
    steps = list(history(DEFAULT, lowered.pipeline, lowered.context))
    assert lowered.ids == []
    assert len(steps) == len(DEFAULT)
    for step in steps:
        assert verify(step.pipeline) == []
        assert parse(dump(step.pipeline)) == step.pipeline


def test_a_stage_inside_a_pipeline_that_is_a_stage_is_planned_as_any_other():
    pipeline = plan(NESTED, deploy="here", base=HERE).pipeline
    assert [s.name for s in pipeline.stages] == ["answer.think", "shout", "speak"]
    how = {name: (s.value, s.origin) for name, s in pipeline.stage("answer.think").how}
    assert how["slots"] == (2, "deploy block")
    assert how["context"] == (512 + 32, "planner")
    slices = {e.name: [(s.outputs, s.stages) for s in e.slices] for e in pipeline.endpoints}
    assert slices == {
        "chat.completions": [
            (("loud",), ("answer.think", "shout")),
            (("loud", "speech"), ("answer.think", "shout", "speak")),
        ],
        "audio.speech": [(("speech",), ("speak",))],
    }


def test_speech_costs_more_the_slower_it_may_be():
    def bytes_at(domain: str) -> int:
        return dict(plan(SPEAK.replace("0.5..2.0", domain)).pipeline.devices[0].items)["say activations"]

    assert bytes_at("0.25..1.0") == pytest.approx(2 * bytes_at("0.5..2.0"), abs=2)
    assert bytes_at("1.0..4.0") == bytes_at("1.0..1.0")
