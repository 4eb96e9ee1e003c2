"""The endpoints of OpenAI's API that make pictures and videos."""

from __future__ import annotations

from omnic.contract.api import Api, Extra, Role, Standard, Unused
from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type

PICTURE_FORMATS = ("png", "jpeg", "webp")
PROMPT_MAX_CHARS = 32_000
PICTURES_PATH = "/v1/images/files"  # where pictures lie that an answer gave as addresses

_TEXT, _BOOL, _INT = Type("text"), Type("bool"), Type("int")
_STRING, _NUMBER, _WHOLE, _OBJECT = ("string",), ("number",), ("integer",), ("object",)
_NO_CHOICE = "this pipeline leaves no choice of it to requests"
_SEED = Standard("seed", Type("seed"), doc="the same seed gives the same result; drawn at random if left out")
_MODEL = Standard("model", _TEXT, doc="the served model")
NEGATIVE = Extra("negative_prompt", "text", ("negative_prompt", "negative"), doc="what to keep away from")
_ALIASES = (("steps", "num_inference_steps"), ("guidance", "guidance_scale"), ("negative", "negative_prompt"))

_SHARED_UNUSED = (
    Unused("user", _STRING, None),
    Unused("safety_identifier", _STRING, None),
    Unused("seed", _WHOLE, (), "this pipeline pins its seed"),
    Unused("size", _STRING, ("auto",), "this pipeline makes one size"),
    Unused("num_inference_steps", _WHOLE, (), _NO_CHOICE),
    Unused("guidance_scale", _NUMBER, (), _NO_CHOICE),
    Unused("negative_prompt", _STRING, ("",), "this pipeline takes none"),
    Unused("strength", _NUMBER, (), _NO_CHOICE),
)

_PICTURES = (
    _MODEL,
    Standard("n", _INT, 1, Range(1, 10), doc="pictures to make; picture i uses seed + i"),
    Standard(
        "response_format", _TEXT, "b64_json", Choices(("b64_json", "url")),
        doc="pictures in the answer itself, or as addresses on this server that expire",
    ),
    Standard("output_format", _TEXT, "png", Choices(PICTURE_FORMATS), doc="how pictures are encoded"),
    Standard(
        "output_compression", _INT, None, Range(0, 100),
        doc="quality of jpeg and webp, 100 the best and the default; png loses nothing and takes none",
    ),
    Standard("stream", _BOOL, False, doc="send progress and pictures as they are made, as server-sent events"),
    Standard("partial_images", _INT, 0, Range(0, 3), doc="unfinished pictures to send on the way; needs `stream`"),
    _SEED,
)  # fmt: skip

_PICTURE_UNUSED = (
    *_SHARED_UNUSED,
    Unused("quality", _STRING, ("auto", "standard"), "steps and guidance are what there is to set"),
    Unused("style", _STRING, (), "styles cannot be set: say it in the prompt"),
    Unused("background", _STRING, ("auto", "opaque"), "transparent pictures are not made"),
    Unused("moderation", _STRING, ("auto", "low"), "there is no filter"),
    Unused("complexity", _STRING, (), "there is no planning to set"),
    Unused("frame_count", _WHOLE, (), "animations are not made"),
    Unused("frame_duration_ms", _WHOLE, (), "animations are not made"),
    Unused("svg", _OBJECT, (), "drawings of lines are not made"),
)

IMAGE_GENERATIONS = Api(
    name="images.generations",
    path="/v1/images/generations",
    summary="Make pictures from a text",
    input="prompt",
    input_kind="text",
    input_max_chars=PROMPT_MAX_CHARS,
    extras=(NEGATIVE,),
    open=("text",),
    gives=("application/json", "text/event-stream"),
    roles=(Role("image", "image"),),
    answers=(("image",),),
    aliases=_ALIASES,
    standard=_PICTURES,
    unused=_PICTURE_UNUSED,
)

IMAGE_EDITS = Api(
    name="images.edits",
    path="/v1/images/edits",
    summary="Make pictures from pictures and a text",
    input="prompt",
    input_kind="text",
    input_max_chars=PROMPT_MAX_CHARS,
    extras=(
        NEGATIVE,
        Extra("mask", "image", ("mask",), doc="where to change the first picture: where this is transparent"),
        Extra("image", "image", required=True, many=True, doc="what to start from"),
    ),
    open=("text", "image"),
    forms=("multipart/form-data", "application/json"),
    gives=("application/json", "text/event-stream"),
    roles=(Role("image", "image"),),
    answers=(("image",),),
    aliases=_ALIASES,
    standard=_PICTURES,
    unused=(
        *_PICTURE_UNUSED,
        Unused("mask", ("string", "object"), (), "this pipeline takes no mask"),
        Unused("markup", ("string", "object"), (), "this pipeline takes no markup"),
        Unused("input_fidelity", _STRING, ("low",), "fidelity cannot be set"),
    ),
)

VIDEOS = Api(
    name="videos",
    path="/v1/videos",
    summary="Begin to make a video; the answer is a job",
    input="prompt",
    input_kind="text",
    input_max_chars=PROMPT_MAX_CHARS,
    extras=(
        NEGATIVE,
        Extra("input_reference", "image", doc="a picture to begin from, as an upload or a data URL"),
    ),
    open=("text", "image"),
    forms=("multipart/form-data", "application/json"),
    gives=("application/json",),
    roles=(Role("video", "video"), Role("audio", "audio")),
    answers=(("video", "audio"), ("video",)),
    aliases=(*_ALIASES, ("frames", "num_frames")),
    timed=(("seconds", "num_frames"),),
    standard=(
        _MODEL,
        Standard("stream", _BOOL, False, doc="for /v1/videos/sync: send the video as it is made, in fragments"),
        _SEED,
    ),
    unused=(
        *_SHARED_UNUSED,
        Unused("seconds", ("string", "number"), (), "this pipeline makes videos of one length"),
        Unused("num_frames", _WHOLE, (), "this pipeline makes videos of one length"),
        Unused("input_reference", ("string", "object"), (), "this pipeline begins from no picture"),
    ),
)
