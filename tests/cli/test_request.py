"""`--in` and `--out` of `omnic run`: what they become, and how each mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.cli.refusal import Refusal
from omnic.cli.request import Request, request
from omnic.contract.domains import Range
from omnic.contract.endpoints import Knob, ParamSpec, Signature, Slice, bind
from omnic.contract.types import parse_type
from omnic.manifest import Manifest

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def assistant() -> Manifest:
    """The contract of the shipped pipeline."""
    params = {
        "max_tokens": ParamSpec(parse_type("int"), Range(1, 1024), 256),
        "speed": ParamSpec(parse_type("float"), Range(0.5, 2.0), 1.0),
    }
    signature = Signature(
        inputs={"messages": parse_type("chat<text>")},
        outputs={"reply": parse_type("text"), "speech": parse_type("audio<24kHz>")},
        params=params,
        knobs=(Knob("think", "stop", "stop", parse_type("text"), None, None, ""),),
    )
    text = ("messages", "max_tokens", "stop", "seed")
    chat = (
        Slice("chat_reply", ("reply",), ("think",), text),
        Slice("chat_reply_speech", ("reply", "speech"), ("think", "speak"), (*text, "speed")),
    )
    speech = (Slice("speech", ("speech",), ("speak",), ("text", "speed", "seed")),)
    endpoints = (
        bind("chat.completions", signature, (), None, chat),
        bind("audio.speech", signature, (), "speak.text", speech),
    )
    return Manifest(
        version=1, omnic="0", pipeline="assistant", class_name="Assistant", source="assistant.omni", source_sha256="",
        target="cpu", inputs=signature.inputs, outputs=signature.outputs, params=params, requires=(), models=(),
        stages=(), endpoints=endpoints,
    )  # fmt: skip


def test_text_becomes_a_message_and_text_is_printed(assistant: Manifest) -> None:
    assert request(assistant, ["messages=Hello"], []) == Request("chat_reply", {"messages": HELLO}, {"reply": "-"})


def test_wanted_outputs_choose_the_stages_that_run(assistant: Manifest) -> None:
    asked = request(assistant, ["messages=Hello", "speed=0.8"], ["speech=a.wav"])
    assert (asked.method, asked.arguments["speed"]) == ("chat_reply_speech", 0.8)
    assert asked.outputs == {"speech": "a.wav"}


@pytest.mark.parametrize("name", ["input", "speak.text"])
def test_an_endpoint_that_enters_below_is_found_by_what_it_takes(name: str, assistant: Manifest) -> None:
    asked = request(assistant, [f"{name}=Hello"], ["speech=a.wav"])
    assert asked == Request("speech", {"text": "Hello"}, {"speech": "a.wav"})


def test_a_conversation_is_given_as_json(assistant: Manifest, tmp_path: Path) -> None:
    file = tmp_path / "talk.json"
    file.write_text('[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]')
    messages = request(assistant, [f"messages=@{file}"], []).arguments["messages"]
    assert [m["role"] for m in messages] == ["system", "user"]


def test_lists_seeds_and_a_value_that_starts_with_an_at(assistant: Manifest) -> None:
    asked = request(assistant, ["messages=@@home", 'stop=["\\n", "END"]', "seed=7"], [])
    assert asked.arguments["messages"][0]["content"] == "@home"
    assert asked.arguments["stop"] == ("\n", "END")
    assert asked.arguments["seed"] == 7


@pytest.mark.parametrize(
    ("given", "wanted", "says"),
    [
        ([], [], "--in is missing: chat.completions takes `messages`"),
        (["messages"], [], "--in takes NAME=VALUE, not `messages`"),
        (["messages=a", "messages=b"], [], "--in messages is given twice"),
        (["massages=a"], [], "--in massages: chat.completions takes `messages`"),
        (["messages=a", "model=x"], [], "--in messages, model: chat.completions takes"),
        (["messages=a"], ["video=x.mp4"], "--out video: assistant gives `reply`, `speech`"),
        (["messages=a"], ["reply"], "--out takes NAME=file, not `reply`"),
        (["input=a"], ["reply=-"], "--out reply: with this input audio.speech gives `speech`"),
        (["input=a"], [], "say where the audio goes: --out speech=speech.wav"),
        (["messages= "], [], "--in: `messages[0].content` is blank"),
        (["messages=a", "max_tokens=2000"], [], "1024"),
        (["messages=a", "max_tokens=many"], [], "`max_tokens` must be a whole number"),
        (["messages=a", "speed=0.8"], ["reply=-"], "`speed` has no effect"),
        (["messages=@nowhere.txt"], [], "cannot read nowhere.txt: no such file or directory"),
    ],
)
def test_a_mistake_is_named(given: list[str], wanted: list[str], says: str, assistant: Manifest) -> None:
    with pytest.raises(Refusal) as refusal:
        request(assistant, given, wanted)
    assert says in str(refusal.value)
    assert "\n" not in str(refusal.value)
