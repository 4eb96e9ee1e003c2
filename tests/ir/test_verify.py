"""The verifier: each broken invariant is named."""

from __future__ import annotations

import pytest

from omnic.ir.text import parse
from omnic.ir.verify import verify
from tests.ir.test_text import ASSISTANT


def test_a_sound_pipeline_has_nothing_to_say():
    assert verify(parse(ASSISTANT)) == []


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (("param %max_tokens", "param %messages : !int\n  param %messages"), "param `messages` is declared twice"),
        (("= 256 in 1..1024", "= 0 in 1..1024"), "param `max_tokens`: its default is outside its domain"),
        (("@lm::", "@llm::"), "stage `think` is a part of `llm`, which is no model"),
        (("= generate @lm", "= muse @lm"), "stage `think` is of unknown kind `muse`"),
        (
            ("messages = %messages", "messages = %chat"),
            "stage `think`: port `messages` is fed by `chat`, which is no input and no channel",
        ),
        (
            ("-> speak.text : !text", "-> think.text : !text"),
            "stage `speak`: port `text` is fed by `c0`, which leads to `think.text`",
        ),
        (
            ("-> speak.text : !text", "-> think.text : !text"),
            "channel `c0` leads to `think.text`, which does not take it",
        ),
        (("(%think.text)", "(%think.words)"), "channel `c0` comes from `think.words`, which nothing gives"),
        (("-> speak.text : !text", "-> speak.text : !audio<24kHz>"), "channel `c0`: `text` is not `audio`"),
        (("!audio<24kHz> = %speak", "!audio<16kHz> = %speak"), "output `speech`: 24kHz is not 16kHz"),
        (
            ("reply : !text = %think.text", "reply : !text = %think.txt"),
            "output `reply` comes from `think.txt`, which nothing gives",
        ),
        (("slots = 8", "on = 8"), "setting of stage `think` `on` is declared twice"),
        (
            ("entry speak.text", "entry speak.words"),
            "endpoint `audio.speech` enters at `speak.words`, which is no port",
        ),
        (("speech: [speak]", "speech: []"), "endpoint `audio.speech`, speech: `speech` needs `speak`"),
        (("[think, speak]", "[speak]"), "endpoint `chat.completions`, reply and speech: `speak.text` needs `think`"),
        (
            ("[think, speak]", "[speak, think]"),
            "endpoint `chat.completions`, reply and speech: its stages stand out of data-flow order",
        ),
        (
            ("[think, speak]", "[think, speak, sing]"),
            "endpoint `chat.completions`, reply and speech: there is no stage `sing`",
        ),
    ],
)  # fmt: skip
def test_what_is_broken_is_named(change, broken):
    text = ASSISTANT.replace(*change)
    assert text != ASSISTANT
    assert broken in verify(parse(text))


def test_stages_stand_in_data_flow_order():
    pipeline = parse(ASSISTANT)
    from dataclasses import replace

    assert "stage `speak` stands before `think`, which feeds it" in verify(
        replace(pipeline, stages=pipeline.stages[::-1])
    )
