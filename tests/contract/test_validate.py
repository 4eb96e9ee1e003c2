"""Request bodies held against the contract of the assistant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from omnic.contract.domains import Choices, Range
from omnic.contract.endpoints import ParamSpec, Signature, Slice, bind
from omnic.contract.schema import request_schema
from omnic.contract.types import parse_type
from omnic.contract.validate import Accepted, Violation, validate
from omnic.expr import Size, parse
from tests.assistant import chat, speech, with_param
from tests.contract import bodies

HELLO = [{"role": "user", "content": "hello"}]


def accept(**fields: Any) -> Accepted:
    return validate(chat(), {"messages": HELLO, **fields})


def refuse(**fields: Any) -> Violation:
    with pytest.raises(Violation) as caught:
        accept(**fields)
    return caught.value


def test_the_least_body_runs_the_text_slice() -> None:
    accepted = accept()
    assert accepted.slice.method == "chat_completions_reply"
    assert accepted.arguments == {"messages": HELLO}
    assert (accepted.options["stream"], accepted.options["n"], accepted.options["seed"]) == (False, 1, None)


def test_given_values_become_arguments() -> None:
    accepted = accept(max_tokens=5, temperature=1, stop=["a", "b"])
    assert accepted.arguments == {"messages": HELLO, "max_tokens": 5, "temperature": 1.0, "stop": ("a", "b")}


def test_asking_for_audio_runs_both_stages() -> None:
    accepted = accept(modalities=["text", "audio"], audio={"voice": "default", "format": "mp3"}, speed=1.5)
    assert accepted.slice.method == "chat_completions_reply_speech"
    assert (accepted.options["audio.format"], accepted.arguments["speed"]) == ("mp3", 1.5)


def test_max_completion_tokens_is_max_tokens() -> None:
    assert accept(max_completion_tokens=7).arguments["max_tokens"] == 7
    assert accept(max_completion_tokens=7, max_tokens=7).arguments["max_tokens"] == 7


def test_a_single_stop_string_is_a_list_of_one() -> None:
    assert accept(stop="END").arguments["stop"] == ("END",)


def test_the_default_voice_is_the_pipeline_s_own() -> None:
    voices = ParamSpec(parse_type('enum("ana", "bo")'), None, "bo")
    slices = (replace(speech().slices[0], arguments=("text", "voice")),)
    endpoint = bind("audio.speech", with_param("voice", voices), {}, "speak.text", slices)
    assert validate(endpoint, {"input": "x", "voice": "ana"}).arguments == {"text": "x", "voice": "ana"}
    assert validate(endpoint, {"input": "x", "voice": "default"}).arguments == {"text": "x"}
    assert request_schema(endpoint)["properties"]["voice"]["enum"] == ["ana", "bo", "default"]
    with pytest.raises(Violation, match='`voice` must be one of "ana", "bo", "default", not "nova"'):
        validate(endpoint, {"input": "x", "voice": "nova"})


def test_null_is_the_same_as_nothing() -> None:
    assert accept(temperature=None, stop=None, seed=None, audio=None, stream_options=None).arguments == {
        "messages": HELLO
    }


def test_parts_of_text_are_joined_and_a_developer_is_a_system() -> None:
    said = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
    ]
    expected = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "one\ntwo"}]
    assert validate(chat(), {"messages": said}).arguments["messages"] == expected


def test_an_answer_of_the_server_can_be_sent_back_as_the_client_dumps_it() -> None:
    answer = {
        "role": "assistant",
        "content": "hi",
        "refusal": None,
        "audio": None,
        "tool_calls": None,
        "annotations": [],
    }
    assert len(validate(chat(), {"messages": [*HELLO, answer, *HELLO]}).arguments["messages"]) == 3


@pytest.mark.parametrize("name", bodies.HARMLESS)
def test_what_changes_nothing_is_accepted(name: str) -> None:
    assert accept(**bodies.HARMLESS[name]).arguments == {"messages": HELLO}


@pytest.mark.parametrize("name", bodies.BAD_CHAT)
def test_a_bad_chat_body_is_refused_and_its_field_named(name: str) -> None:
    body, field = bodies.BAD_CHAT[name]
    with pytest.raises(Violation) as caught:
        validate(chat(), body)
    assert caught.value.field == field
    assert caught.value.message


@pytest.mark.parametrize("name", bodies.BAD_SPEECH)
def test_a_bad_speech_body_is_refused_and_its_field_named(name: str) -> None:
    body, field = bodies.BAD_SPEECH[name]
    with pytest.raises(Violation) as caught:
        validate(speech(), body)
    assert caught.value.field == field
    assert caught.value.message


def test_messages_say_what_would_be_right() -> None:
    assert refuse(max_tokens=5000).message == "`max_tokens` must be in 1..1024, not 5000"
    assert refuse(max_completion_tokens=0).message == "`max_completion_tokens` must be in 1..1024, not 0"
    assert refuse(temprature=1).message == "unknown field `temprature`; did you mean `temperature`?"
    assert refuse(max_tokens="ten").message == '`max_tokens` must be a whole number, not "ten"'
    assert refuse(modalities=["audio"]).message == '`modalities` must be ["text"] or ["text", "audio"], not ["audio"]'
    assert refuse(tools=[{}]).message == "`tools` cannot be [{}]: tools are not supported"
    assert refuse(speed=1.5).message == '`speed` has no effect unless `modalities` is ["text", "audio"]'


def test_the_range_in_the_source_is_the_range_in_the_message() -> None:
    narrow = chat(with_param("max_tokens", ParamSpec(parse_type("int"), Range(1, 64), 32)))
    with pytest.raises(Violation, match=r"`max_tokens` must be in 1..64, not 65"):
        validate(narrow, {"messages": HELLO, "max_tokens": 65})


def test_a_rule_that_does_not_hold_is_shown_with_its_values() -> None:
    rule = parse("max_tokens * speed <= 512")
    body = {"messages": HELLO, "max_tokens": 400, "speed": 2.0, "modalities": ["text", "audio"]}
    with pytest.raises(Violation) as caught:
        validate(chat(), body, (rule,))
    assert (
        caught.value.message == "the rule `max_tokens * speed <= 512` does not hold for max_tokens = 400, speed = 2.0"
    )
    assert (caught.value.field, caught.value.code) == ("max_tokens", "rule_violated")


def test_a_rule_holds_for_defaults_too_and_one_about_other_fields_does_not_concern_an_endpoint() -> None:
    with pytest.raises(Violation, match="does not hold"):
        validate(chat(), {"messages": HELLO}, (parse("max_tokens <= 100"),))
    assert validate(speech(), {"input": "hello"}, (parse("max_tokens <= 100"),)).arguments == {"text": "hello"}


def test_a_rule_over_an_input_is_held_before_any_work() -> None:
    params = {
        "style": ParamSpec(parse_type("text?"), None, None),
        "level": ParamSpec(parse_type("int"), Range(0, 9), 1),
    }
    signature = Signature({"words": parse_type("text")}, {"speech": parse_type("audio<24kHz>")}, params)
    slices = (Slice("method", ("speech",), ("speak",), ("words", "style", "level")),)
    endpoint = bind("audio.speech", signature, slices=slices)
    rules = (parse('words != "no"'), parse("style == none or style != words"), parse("10 / level > 1"))
    assert validate(endpoint, {"input": "yes", "level": 5}, rules).arguments == {"words": "yes", "level": 5}
    for body, says in (
        ({"input": "no"}, 'does not hold for input = "no"'),
        ({"input": "x" * 90, "style": "x" * 90}, "x…"),
        ({"input": "yes", "level": 0}, "cannot be applied"),
    ):
        with pytest.raises(Violation, match=says) as caught:
            validate(endpoint, body, rules)
        assert caught.value.field


def test_a_rule_over_the_seed_is_held_too() -> None:
    signature = with_param("seed", ParamSpec(parse_type("seed"), Range(0, 99), 7))
    endpoint = bind("chat.completions", signature, slices=chat().slices)
    assert validate(endpoint, {"messages": HELLO}, (parse("seed < 50"),)).options["seed"] == 7
    with pytest.raises(Violation, match="does not hold for seed = 60"):
        validate(endpoint, {"messages": HELLO, "seed": 60}, (parse("seed < 50"),))


def test_sizes_and_choices_are_read_from_text() -> None:
    domain = Choices((Size(512, 512), Size(1024, 1024)))
    signature = with_param("size", ParamSpec(parse_type("size"), domain, Size(512, 512)))
    slices = (Slice("method", ("speech",), ("a",), ("text", "size")),)
    endpoint = bind("audio.speech", signature, {}, "a.text", slices)
    assert validate(endpoint, {"input": "x", "size": "1024x1024"}).arguments["size"] == Size(1024, 1024)
    for bad in ("100000x10000", "0x0", "-8x8", "abc", "513x512", 512):
        with pytest.raises(Violation) as caught:
            validate(endpoint, {"input": "x", "size": bad})
        assert caught.value.field == "size"
