"""`--in` and `--out` of `omnic run`: what they become, and how each mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.cli.refusal import Refusal
from omnic.cli.request import Request, request
from omnic.manifest import Manifest
from tests import assistant as contract

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def assistant() -> Manifest:
    """The contract of the shipped pipeline."""
    return contract.assistant()


def test_text_becomes_a_message_and_text_is_printed(assistant: Manifest) -> None:
    assert request(assistant, ["messages=Hello"], []) == Request(
        "chat_completions_reply", {"messages": HELLO}, {"reply": "-"}
    )


def test_wanted_outputs_choose_the_stages_that_run(assistant: Manifest) -> None:
    asked = request(assistant, ["messages=Hello", "speed=0.8"], ["speech=a.wav"])
    assert (asked.method, asked.arguments["speed"]) == ("chat_completions_reply_speech", 0.8)
    assert asked.outputs == {"speech": "a.wav"}


@pytest.mark.parametrize("name", ["input", "speak.text"])
def test_an_endpoint_that_enters_below_is_found_by_what_it_takes(name: str, assistant: Manifest) -> None:
    asked = request(assistant, [f"{name}=Hello"], ["speech=a.wav"])
    assert asked == Request("audio_speech_speech", {"text": "Hello"}, {"speech": "a.wav"})


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
        (["messages=a\udcff"], [], "--in takes UTF-8 text, not a\\udcff"),
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
