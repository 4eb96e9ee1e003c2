"""Bodies that must be refused, with the field at fault, and fields that must not matter."""

from __future__ import annotations

from typing import Any

HELLO = [{"role": "user", "content": "hello"}]
Cases = dict[str, tuple[Any, str | None]]


def _chat(field: str | None, **fields: Any) -> tuple[dict[str, Any], str | None]:
    return {"messages": HELLO, **fields}, field


def _messages(field: str, *messages: Any) -> tuple[dict[str, Any], str]:
    return {"messages": list(messages)}, field


def _content(field: str, content: Any) -> tuple[dict[str, Any], str]:
    return {"messages": [{"role": "user", "content": content}]}, field


BAD_CHAT: Cases = {
    "a list": ([], None),
    "a text": ("hello", None),
    "null": (None, None),
    "nothing": ({}, "messages"),
    "messages null": ({"messages": None}, "messages"),
    "messages a text": ({"messages": "hello"}, "messages"),
    "messages an object": ({"messages": {"role": "user"}}, "messages"),
    "no messages": ({"messages": []}, "messages"),
    "a message that is a text": _messages("messages[0]", "hello"),
    "no role": _messages("messages[0].role", {"content": "x"}),
    "an unknown role": _messages("messages[0].role", {"role": "wizard", "content": "x"}),
    "a role that is a list": _messages("messages[0].role", {"role": ["user"], "content": "x"}),
    "a tool's message": _messages("messages[1].role", HELLO[0], {"role": "tool", "content": "x", "tool_call_id": "1"}),
    "no content": _messages("messages[0].content", {"role": "user"}),
    "content null": _content("messages[0].content", None),
    "content empty": _content("messages[0].content", ""),
    "content blank": _content("messages[0].content", " \n\t "),
    "content a number": _content("messages[0].content", 7),
    "no parts": _content("messages[0].content", []),
    "blank parts": _content("messages[0].content", [{"type": "text", "text": "  "}]),
    "a part that is a text": _content("messages[0].content[0]", ["hello"]),
    "a part without type": _content("messages[0].content[0]", [{"text": "x"}]),
    "a part of unknown type": _content("messages[0].content[0].type", [{"type": "smell", "text": "x"}]),
    "an image": _content("messages[0].content[0]", [{"type": "image_url", "image_url": {"url": "data:,"}}]),
    "sound": _content(
        "messages[0].content[0]", [{"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}]
    ),
    "a part without its text": _content("messages[0].content[0].text", [{"type": "text"}]),
    "only a system message": _messages("messages", {"role": "system", "content": "be brief"}),
    "tool calls": _messages(
        "messages[0].tool_calls", {"role": "assistant", "content": "x", "tool_calls": [{"id": "1"}]}, HELLO[0]
    ),
    "an earlier answer's sound": _messages(
        "messages[0].audio", {"role": "assistant", "content": "x", "audio": {"id": "a"}}, HELLO[0]
    ),
    "a name": _messages("messages[0].name", {"role": "user", "name": "bo", "content": "x"}),
    "an unknown field of a message": _messages("messages[0].colour", {"role": "user", "content": "x", "colour": "red"}),
    "an unknown field": _chat("colour", colour="red"),
    "a misspelt field": _chat("temprature", temprature=1),
    "max_tokens 0": _chat("max_tokens", max_tokens=0),
    "max_tokens too many": _chat("max_tokens", max_tokens=1025),
    "max_tokens negative": _chat("max_tokens", max_tokens=-1),
    "max_tokens a text": _chat("max_tokens", max_tokens="10"),
    "max_tokens a fraction": _chat("max_tokens", max_tokens=1.5),
    "max_tokens true": _chat("max_tokens", max_tokens=True),
    "max_completion_tokens too many": _chat("max_completion_tokens", max_completion_tokens=2000),
    "both and different": _chat("max_completion_tokens", max_tokens=3, max_completion_tokens=4),
    "temperature too high": _chat("temperature", temperature=2.1),
    "temperature a text": _chat("temperature", temperature="hot"),
    "temperature endless": _chat("temperature", temperature=1e308 * 10),
    "top_p too high": _chat("top_p", top_p=1.5),
    "top_k negative": _chat("top_k", top_k=-1),
    "n 0": _chat("n", n=0),
    "n too many": _chat("n", n=1000),
    "a negative seed": _chat("seed", seed=-1),
    "a seed too large": _chat("seed", seed=2**63),
    "stop too many": _chat("stop", stop=["a", "b", "c", "d", "e"]),
    "stop empty": _chat("stop", stop=[""]),
    "stop a number": _chat("stop", stop=5),
    "stop of numbers": _chat("stop[0]", stop=[5]),
    "stream a text": _chat("stream", stream="yes"),
    "stream options alone": _chat("stream_options", stream_options={"include_usage": True}),
    "stream options a list": _chat("stream_options", stream=True, stream_options=[]),
    "an unknown stream option": _chat("stream_options.usage", stream=True, stream_options={"usage": True}),
    "padded streams": _chat(
        "stream_options.include_obfuscation", stream=True, stream_options={"include_obfuscation": True}
    ),
    "modalities a text": _chat("modalities", modalities="text"),
    "no modalities": _chat("modalities", modalities=[]),
    "an unknown modality": _chat("modalities[0]", modalities=["video"]),
    "audio alone": _chat("modalities", modalities=["audio"]),
    "audio settings without audio": _chat("audio", audio={"format": "mp3"}),
    "an unknown format": _chat("audio.format", modalities=["text", "audio"], audio={"format": "midi"}),
    "an unknown voice": _chat("audio.voice", modalities=["text", "audio"], audio={"voice": "nova"}),
    "audio a text": _chat("audio", modalities=["text", "audio"], audio="mp3"),
    "speed without audio": _chat("speed", speed=1.5),
    "speed too low": _chat("speed", modalities=["text", "audio"], speed=0.1),
    "tools": _chat("tools", tools=[{"type": "function", "function": {"name": "f"}}]),
    "a tool choice": _chat("tool_choice", tool_choice="required"),
    "functions": _chat("functions", functions=[{"name": "f"}]),
    "a JSON answer": _chat("response_format", response_format={"type": "json_object"}),
    "log probabilities": _chat("logprobs", logprobs=True),
    "top log probabilities": _chat("top_logprobs", top_logprobs=3),
    "a penalty": _chat("frequency_penalty", frequency_penalty=0.5),
    "another penalty": _chat("presence_penalty", presence_penalty=-0.5),
    "a bias": _chat("logit_bias", logit_bias={"50256": -100}),
    "reasoning": _chat("reasoning_effort", reasoning_effort="high"),
    "a prediction": _chat("prediction", prediction={"type": "content", "content": "x"}),
    "a web search": _chat("web_search_options", web_search_options={}),
    "metadata a text": _chat("metadata", metadata="x"),
    "a user that is a number": _chat("user", user=7),
    "model a number": _chat("model", model=7),
}

HARMLESS: dict[str, dict[str, Any]] = {
    "user": {"user": "bo"},
    "metadata": {"metadata": {"a": "b"}},
    "store": {"store": True},
    "n": {"n": 1},
    "an empty bias": {"logit_bias": {}},
    "penalties of 0": {"frequency_penalty": 0, "presence_penalty": 0.0},
    "no log probabilities": {"logprobs": False, "top_logprobs": None},
    "text": {"response_format": {"type": "text"}, "modalities": ["text"]},
    "no tools": {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True},
    "the usual tier": {"service_tier": "auto"},
    "keys of caches": {"prompt_cache_key": "x", "safety_identifier": "y"},
    "speed as it is": {"speed": 1.0},
    "no obfuscation": {"stream": True, "stream_options": {"include_obfuscation": False}},
}


def _speech(field: str | None, **fields: Any) -> tuple[dict[str, Any], str | None]:
    return {"input": "hello", **fields}, field


BAD_SPEECH: Cases = {
    "a list": ([], None),
    "a number": (3, None),
    "nothing": ({}, "input"),
    "input null": ({"input": None}, "input"),
    "input empty": ({"input": ""}, "input"),
    "input blank": ({"input": " \r\n\t"}, "input"),
    "input a number": ({"input": 12}, "input"),
    "input a list": ({"input": ["hello"]}, "input"),
    "input an object": ({"input": {"text": "hello"}}, "input"),
    "input too long": ({"input": "a" * 4097}, "input"),
    "an unknown field": _speech("text", text="hello"),
    "a misspelt field": _speech("respons_format", respons_format="mp3"),
    "a field of another endpoint": _speech("max_tokens", max_tokens=5),
    "messages": _speech("messages", messages=HELLO),
    "voice empty": _speech("voice", voice=""),
    "an unknown voice": _speech("voice", voice="nova"),
    "voice a number": _speech("voice", voice=1),
    "voice an object": _speech("voice", voice={"id": "x"}),
    "format empty": _speech("response_format", response_format=""),
    "an unknown format": _speech("response_format", response_format="midi"),
    "a format in capitals": _speech("response_format", response_format="MP3"),
    "format a number": _speech("response_format", response_format=3),
    "format an object": _speech("response_format", response_format={"type": "text"}),
    "speed 0": _speech("speed", speed=0),
    "speed too low": _speech("speed", speed=0.49),
    "speed too high": _speech("speed", speed=2.01),
    "speed negative": _speech("speed", speed=-1),
    "speed a text": _speech("speed", speed="fast"),
    "speed true": _speech("speed", speed=True),
    "speed endless": _speech("speed", speed=1e308 * 10),
    "speed a list": _speech("speed", speed=[1]),
    "an unknown stream format": _speech("stream_format", stream_format="chunks"),
    "stream format true": _speech("stream_format", stream_format=True),
    "stream": _speech("stream", stream=True),
    "instructions": _speech("instructions", instructions="whisper"),
    "instructions a number": _speech("instructions", instructions=1),
    "a negative seed": _speech("seed", seed=-5),
    "a seed that is a text": _speech("seed", seed="1"),
    "a seed that is a fraction": _speech("seed", seed=0.5),
    "model a number": _speech("model", model=1),
    "model a list": _speech("model", model=["assistant"]),
}
