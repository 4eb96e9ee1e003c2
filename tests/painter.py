"""Pipelines that draw and film, as manifests for fakes: a painter with every field, a maker of films with sound."""

from __future__ import annotations

from omnic import manifest
from omnic.contract.domains import Choices, Range
from omnic.contract.endpoints import Endpoint, Knob, ParamSpec, Signature, Slice, bind
from omnic.contract.types import parse_type
from omnic.expr import Size, parse

SIZES = Range(Size(64, 64), Size(512, 512), 16)
PAINTER = Signature(
    inputs={
        "prompt": parse_type("text<max_tokens = 100>"),
        "negative": parse_type("text?"),
        "photo": parse_type("image<pixels = 65536>?"),
        "second": parse_type("image<pixels = 65536>?"),
        "mask": parse_type("image?"),
    },
    outputs={"picture": parse_type("image")},
    params={
        "size": ParamSpec(parse_type("size"), SIZES, Size(64, 64)),
        "steps": ParamSpec(parse_type("int"), Range(1, 100), 4),
        "hue": ParamSpec(parse_type("enum(\"warm\", \"cold\")"), None, "warm"),
    },
    knobs=(
        Knob("paint", "guidance", "guidance_scale", parse_type("float"), Range(0.0, 20.0), 4.0, "how closely"),
        Knob("paint", "strength", "strength", parse_type("float"), Range(0.0, 1.0), 1.0, ""),
        Knob("paint", "seed", "seed", parse_type("seed"), None, None, ""),
    ),
)  # fmt: skip
_DRAW = ("prompt", "negative", "size", "steps", "hue", "guidance_scale", "strength", "seed")
_EDIT = ("prompt", "negative", "photo", "second", "mask", *_DRAW[2:])

FILM = Signature(
    inputs={"prompt": parse_type("text"), "negative": parse_type("text?"), "first": parse_type("image?")},
    outputs={"clip": parse_type("video<16fps>"), "sound": parse_type("audio<24kHz>")},
    params={
        "size": ParamSpec(parse_type("size"), Choices((Size(64, 64), Size(96, 64))), Size(64, 64)),
        "frames": ParamSpec(parse_type("int"), Range(5, 161, 4), 9),
        "steps": ParamSpec(parse_type("int"), Range(1, 200), 4),
    },
    knobs=(Knob("film", "seed", "seed", parse_type("seed"), None, None, ""),),
)
_FILM = ("prompt", "negative", "first", "size", "frames", "steps", "seed")


def generations(signature: Signature = PAINTER) -> Endpoint:
    slices = (Slice("images_generations_picture", ("picture",), ("paint",), _DRAW),)
    return bind("images.generations", signature, {}, None, slices)


def edits(signature: Signature = PAINTER) -> Endpoint:
    slices = (Slice("images_edits_picture", ("picture",), ("paint",), _EDIT),)
    return bind("images.edits", signature, {}, None, slices)


def videos(signature: Signature = FILM) -> Endpoint:
    slices = (
        Slice("videos_clip_sound", ("clip", "sound"), ("film", "score"), _FILM),
        Slice("videos_clip", ("clip",), ("film",), _FILM),
    )
    return bind("videos", signature, {"input_reference": "first"}, None, slices)


def painter(slots: int = 4) -> manifest.Manifest:
    """Draws, from text and from pictures."""
    stage = manifest.Stage(
        "paint", "denoise", None, "denoiser", {"prompt": "prompt"}, {"image": parse_type("image")}, how={"slots": slots}
    )
    return _manifest("painter", PAINTER, (stage,), (generations(), edits()))


def studio(slots: int = 4) -> manifest.Manifest:
    """Makes videos with sound."""
    stages = (
        manifest.Stage(
            "film", "denoise", None, "denoiser", {"prompt": "prompt"}, {"video": parse_type("video<16fps>")},
            how={"slots": slots},
        ),
        manifest.Stage("score", "decode", None, "score", {"text": "prompt"}, {"audio": parse_type("audio<24kHz>")}),
    )  # fmt: skip
    return _manifest("studio", FILM, stages, (videos(),), ("frames * size.area <= 161 * 4096",))


def _manifest(
    name: str,
    signature: Signature,
    stages: tuple[manifest.Stage, ...],
    endpoints: tuple[Endpoint, ...],
    rules: tuple[str, ...] = (),
) -> manifest.Manifest:
    return manifest.Manifest(
        version=manifest.VERSION,
        omnic="0.1.0",
        pipeline=name,
        class_name=name.capitalize(),
        source=f"{name}.omni",
        source_sha256="0" * 64,
        target="cpu",
        inputs=signature.inputs,
        outputs=signature.outputs,
        params=signature.params,
        requires=tuple(parse(rule) for rule in rules),
        models=(),
        stages=stages,
        endpoints=endpoints,
    )
