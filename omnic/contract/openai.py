"""The endpoints of OpenAI's API: every request field they define, and what omnic makes of it.

A field is bound to the pipeline (`endpoints.bind`), honoured by the server itself (`Standard`), or of no use here
(`Unused`): then values that change nothing are accepted and any other is refused by name.
"""

from __future__ import annotations

from omnic.contract.api import Api, Role, Standard, Unused
from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type
from omnic.contract.visual import IMAGE_EDITS, IMAGE_GENERATIONS, NEGATIVE, VIDEOS

DEFAULT_VOICE = "default"
VOICE_FIELDS = ("voice", "audio.voice")
SPEECH_FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
CHAT_FORMATS = ("wav", "mp3", "opus", "aac", "flac", "pcm16")

_TEXT, _BOOL, _INT = Type("text"), Type("bool"), Type("int")
_ONE_VOICE = Choices((DEFAULT_VOICE,))
_STRING, _OBJECT, _ARRAY = ("string",), ("object",), ("array",)

_CHAT = Api(
    name="chat.completions",
    path="/v1/chat/completions",
    summary="Answer a conversation",
    input="messages",
    input_kind="chat",
    gives=("application/json", "text/event-stream"),
    roles=(Role("text", "text"), Role("audio", "audio"), Role("image", "image")),
    answers=(("text",), ("text", "audio"), ("text", "image"), ("text", "audio", "image")),
    aliases=(("max_completion_tokens", "max_tokens"),),
    nested=(("voice", "audio.voice"),),
    standard=(
        Standard("model", _TEXT, doc="the served model"),
        Standard(
            "modalities", _TEXT, ("text",), Choices(("text", "audio", "image")), many=3, doc="what the answer holds"
        ),
        Standard("audio.voice", _TEXT, DEFAULT_VOICE, _ONE_VOICE, role="audio", doc="who speaks"),
        Standard("audio.format", _TEXT, "wav", Choices(CHAT_FORMATS), role="audio", doc="how speech is encoded"),
        Standard("n", _INT, 1, Range(1, 16), doc="answers to give; answer i uses seed + i"),
        Standard("seed", Type("seed"), doc="the same seed gives the same answer; drawn at random if left out"),
        Standard("stream", _BOOL, False, doc="send the answer as it is made, as server-sent events"),
        Standard("stream_options.include_usage", _BOOL, False, doc="end a stream with a chunk that counts tokens"),
    ),
    unused=(
        Unused("user", _STRING, None),
        Unused("metadata", _OBJECT, None),
        Unused("store", ("boolean",), None, "accepted; nothing is kept"),
        Unused("safety_identifier", _STRING, None),
        Unused("prompt_cache_key", _STRING, None),
        Unused("prompt_cache_options", _OBJECT, None),
        Unused("prompt_cache_retention", _STRING, None),
        Unused("parallel_tool_calls", ("boolean",), None, "accepted; there are no tools to call"),
        Unused("service_tier", _STRING, ("auto", "default"), "there is one tier"),
        Unused("frequency_penalty", ("number",), (0,), "penalties are not built"),
        Unused("presence_penalty", ("number",), (0,), "penalties are not built"),
        Unused("logit_bias", _OBJECT, ({},), "biases are not built"),
        Unused("logprobs", ("boolean",), (False,), "log probabilities are not reported"),
        Unused("top_logprobs", ("integer",), (0,), "log probabilities are not reported"),
        Unused("seed", ("integer",), (), "this pipeline pins its seed"),
        Unused("stop", ("string", "array"), ([],), "this pipeline takes no stop strings"),
        Unused("temperature", ("number",), (), "this pipeline leaves no choice of it to requests"),
        Unused("top_p", ("number",), (), "this pipeline leaves no choice of it to requests"),
        Unused("max_tokens", ("integer",), (), "this pipeline leaves no choice of it to requests"),
        Unused("max_completion_tokens", ("integer",), (), "this pipeline leaves no choice of it to requests"),
        Unused("audio", _OBJECT, (), "this pipeline does not speak"),
        Unused("response_format", _OBJECT, ({"type": "text"},), "answers are plain text"),
        Unused("tools", _ARRAY, ([],), "tools are not supported"),
        Unused("tool_choice", ("string", "object"), ("none", "auto"), "tools are not supported"),
        Unused("functions", _ARRAY, ([],), "tools are not supported"),
        Unused("function_call", ("string", "object"), ("none", "auto"), "tools are not supported"),
        Unused("prediction", _OBJECT, (), "predicted outputs are not supported"),
        Unused("moderation", _OBJECT, (), "moderation is not supported"),
        Unused("reasoning_effort", _STRING, ("none",), "this pipeline has no reasoning to set"),
        Unused("verbosity", _STRING, ("medium",), "verbosity cannot be set"),
        Unused("web_search_options", _OBJECT, (), "web search is not supported"),
        Unused("stream_options.include_obfuscation", ("boolean",), (False,), "streams are not padded"),
    ),
)

_SPEECH = Api(
    name="audio.speech",
    path="/v1/audio/speech",
    summary="Read a text aloud",
    input="input",
    input_kind="text",
    input_max_chars=4096,
    gives=(
        "audio/mpeg",
        "audio/ogg",
        "audio/aac",
        "audio/flac",
        "audio/wav",
        "audio/pcm",
        "text/event-stream",
    ),
    extras=(NEGATIVE,),
    aliases=(("negative", NEGATIVE.name),),
    roles=(Role("audio", "audio"),),
    answers=(("audio",),),
    standard=(
        Standard("model", _TEXT, doc="the served model"),
        Standard("voice", _TEXT, DEFAULT_VOICE, _ONE_VOICE, doc="who speaks"),
        Standard("response_format", _TEXT, "mp3", Choices(SPEECH_FORMATS), doc="how the sound is encoded"),
        Standard(
            "stream_format",
            _TEXT,
            None,
            Choices(("audio", "sse")),
            doc="send sound as it is made: as one body (audio) or as server-sent events (sse); whole if left out",
        ),
        Standard("seed", Type("seed"), doc="the same seed gives the same sound; drawn at random if left out"),
    ),
    unused=(
        Unused("seed", ("integer",), (), "this pipeline pins its seed"),
        Unused("speed", ("number",), (1,), "this pipeline speaks at one speed"),
        Unused("instructions", _STRING, ("",), "this pipeline takes no instructions"),
    ),
)


def _later(name: str, path: str) -> Api:
    return Api(name, path, later=f"`{name}` cannot be served yet")


ENDPOINTS: dict[str, Api] = {
    api.name: api
    for api in (
        _CHAT,
        _SPEECH,
        _later("completions", "/v1/completions"),
        _later("embeddings", "/v1/embeddings"),
        IMAGE_GENERATIONS,
        IMAGE_EDITS,
        _later("audio.transcriptions", "/v1/audio/transcriptions"),
        _later("audio.translations", "/v1/audio/translations"),
        VIDEOS,
        _later("realtime", "/v1/realtime"),
    )
}
