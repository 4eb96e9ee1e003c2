"""How endpoints bind to a pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from openai.types.audio import speech_create_params
from openai.types.chat import completion_create_params

from omnic.contract.domains import Choices, Range
from omnic.contract.endpoints import ENDPOINTS, BindError, Field, Knob, ParamSpec, Signature, answers, bind, offered
from omnic.contract.types import parse_type
from tests.assistant import SIGNATURE, chat, speech, with_param


def fields(endpoint_fields: tuple[Field, ...]) -> dict[str, Field]:
    return {f.name: f for f in endpoint_fields}


def test_an_input_a_param_and_a_knob_become_request_fields() -> None:
    found = fields(chat().fields)
    assert (found["messages"].target, found["messages"].required) == ("input messages", True)
    assert (found["max_tokens"].target, found["max_tokens"].domain) == ("param max_tokens", Range(1, 1024))
    assert (found["temperature"].target, found["temperature"].argument) == ("knob think.temperature", "temperature")


def test_outputs_fill_the_parts_of_the_answer() -> None:
    assert chat().outputs == (("text", "reply"), ("audio", "speech"))
    assert speech().outputs == (("audio", "speech"),)


def test_max_completion_tokens_is_max_tokens() -> None:
    found = fields(chat().fields)
    assert found["max_completion_tokens"].argument == "max_tokens"
    assert found["max_completion_tokens"].domain == found["max_tokens"].domain


def test_an_entry_takes_the_input_and_keeps_the_limit_of_the_api() -> None:
    entry = fields(speech().fields)["input"]
    assert (entry.target, entry.argument, str(entry.type)) == ("entry", "text", "text<max_chars = 4096>")


@pytest.mark.parametrize(
    ("said", "field"),
    [("input", "input"), ("prompt", "input"), ("voice.id", "voice.id"), ("strength", None), (None, None)],
)
def test_what_a_stage_calls_by_another_name_is_blamed_as_the_endpoint_calls_it(
    said: str | None, field: str | None
) -> None:
    assert speech().blamed(said) == field


def test_the_text_of_a_stage_within_a_conversation_is_no_field_of_it() -> None:
    assert chat().blamed("prompt") is None
    assert chat().blamed("messages[0].content") == "messages[0].content"


def test_a_tighter_limit_of_the_port_wins() -> None:
    bound = bind("audio.speech", SIGNATURE, entry="speak.text", entry_type=parse_type("text<max_chars = 100>"))
    assert str(fields(bound.fields)["input"].type) == "text<max_chars = 100>"


def test_only_what_a_slice_takes_is_a_field() -> None:
    assert "max_tokens" not in fields(speech().fields)
    assert "speed" in fields(speech().fields)


def test_a_seed_that_the_source_pins_is_no_field() -> None:
    pinned = tuple(replace(s, arguments=tuple(a for a in s.arguments if a != "seed")) for s in chat().slices)
    assert "seed" not in fields(bind("chat.completions", SIGNATURE, slices=pinned).fields)


def test_an_override_puts_a_param_under_a_field_of_the_api() -> None:
    signature = Signature(
        SIGNATURE.inputs, SIGNATURE.outputs, {"rate": ParamSpec(parse_type("float"), Range(0.5, 2.0), 1.0)}
    )
    bound = fields(bind("audio.speech", signature, {"speed": "rate"}, "speak.text").fields)
    assert (bound["speed"].target, "rate" in bound) == ("param rate", False)


def test_a_voice_is_where_the_api_keeps_it() -> None:
    signature = with_param("voice", ParamSpec(parse_type('enum("ana", "bo")'), None, "ana"))
    assert fields(bind("chat.completions", signature).fields)["audio.voice"].target == "param voice"
    assert fields(bind("audio.speech", signature, entry="speak.text").fields)["voice"].target == "param voice"


def test_a_voice_that_the_catalog_offers_is_there_too() -> None:
    knob = Knob("speak", "voice", "voice", parse_type('enum("heart")'), None, "heart", "")
    signature = replace(SIGNATURE, knobs=(*SIGNATURE.knobs, knob))
    found = fields(bind("chat.completions", signature).fields)
    assert (found["audio.voice"].target, "voice" in found) == ("knob speak.voice", False)


def test_a_pipeline_with_one_voice_takes_its_neutral_name() -> None:
    assert fields(speech().fields)["voice"].domain == Choices(("default",))


@pytest.mark.parametrize("name", ["class", "self", "max"])
def test_a_param_is_a_field_under_its_own_name_whatever_python_makes_of_it(name: str) -> None:
    signature = with_param(name, ParamSpec(parse_type("int"), None, 1))
    slices = tuple(replace(s, arguments=(*s.arguments, name)) for s in chat().slices)
    assert fields(bind("chat.completions", signature, slices=slices).fields)[name].argument == name


def test_answers_are_the_sets_of_outputs_that_can_be_asked_for() -> None:
    assert answers("chat.completions", SIGNATURE.outputs) == (("reply",), ("reply", "speech"))
    assert answers("audio.speech", SIGNATURE.outputs) == (("speech",),)
    assert answers("chat.completions", {"reply": parse_type("text")}) == (("reply",),)


def test_without_serve_endpoints_follow_from_the_types() -> None:
    assert offered(SIGNATURE) == ("chat.completions",)
    assert offered(Signature({"text": parse_type("text")}, {"sound": parse_type("audio<24kHz>")}, {})) == (
        "audio.speech",
    )


@pytest.mark.parametrize("name", [a.name for a in ENDPOINTS.values() if a.later])
def test_an_endpoint_of_a_later_version_is_known(name: str) -> None:
    with pytest.raises(BindError, match=f"`{name}` cannot be served yet") as caught:
        bind(name, SIGNATURE)
    assert caught.value.id == "not-supported-yet"


def test_an_unknown_endpoint_is_named_with_the_nearest() -> None:
    with pytest.raises(
        BindError, match=r"unknown endpoint `chat.completion`; did you mean `chat.completions`\?"
    ) as caught:
        bind("chat.completion", SIGNATURE)
    assert caught.value.id == "unknown-endpoint"


TWO_TEXTS = {"reply": parse_type("text"), "notes": parse_type("text")}
MISFITS = {
    "no input": (Signature({}, SIGNATURE.outputs, {}), {}, "needs an input of type `chat`; the pipeline has none"),
    "no output": (Signature(SIGNATURE.inputs, {}, {}), {}, "needs an output of type `text`; the pipeline has none"),
    "two outputs": (
        Signature(SIGNATURE.inputs, TWO_TEXTS, {}),
        {},
        "can answer with `reply` or `notes`: say which, `text = reply`",
    ),
    "another required input": (
        Signature(SIGNATURE.inputs | {"photo": parse_type("image")}, SIGNATURE.outputs, {}),
        {},
        "no field for the input `photo`",
    ),
    "a param in the way": (
        with_param("stream", ParamSpec(parse_type("int"), None, 1)),
        {},
        "param `stream` has the name of",
    ),
    "unknown name": (SIGNATURE, {"speed": "sped"}, "no input, output or param `sped`; did you mean `speed`"),
    "unknown part": (
        SIGNATURE,
        {"txt": "reply"},
        "no field or part `txt` that `reply` could serve; did you mean `text`",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_said(case: str) -> None:
    signature, overrides, message = MISFITS[case]
    with pytest.raises(BindError) as caught:
        bind("chat.completions", signature, overrides)
    assert message in caught.value.message
    assert caught.value.id == "cannot-bind"


def test_two_outputs_and_an_override_bind() -> None:
    signature = Signature(SIGNATURE.inputs, TWO_TEXTS, {})
    assert bind("chat.completions", signature, {"text": "notes"}).outputs == (("text", "notes"),)


def test_every_field_of_the_api_is_known() -> None:
    """The table against OpenAI's own client: a field that it learns must be decided here."""
    params = {
        "chat.completions": completion_create_params.CompletionCreateParamsBase.__annotations__.keys() | {"stream"},
        "audio.speech": speech_create_params.SpeechCreateParams.__annotations__.keys(),
    }
    for endpoint in (chat(), speech()):
        api = ENDPOINTS[endpoint.name]
        known = {n.split(".")[0] for n in [*(f.name for f in endpoint.fields), *(u.name for u in api.unused)]}
        assert params[endpoint.name] - known == set()
