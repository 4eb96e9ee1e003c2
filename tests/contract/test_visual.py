"""Pictures and videos: how their endpoints bind to a pipeline, and bodies held against them."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from openai.types import image_edit_params, image_generate_params, video_create_params

from omnic.contract.domains import Choices, Range
from omnic.contract.endpoints import ENDPOINTS, BindError, Endpoint, Knob, ParamSpec, Signature, Slice, bind, offered
from omnic.contract.forms import body_of
from omnic.contract.openapi import openapi
from omnic.contract.types import parse_type
from omnic.contract.validate import Accepted, Violation, validate
from omnic.contract.values import MAX_PIXELS, Upload
from omnic.expr import Size, parse
from tests.contract import visual_bodies as bodies
from tests.contract.visual_bodies import PICTURE
from tests.painter import FILM, PAINTER, edits, generations, painter, studio, videos

TEXT_TO_IMAGE = Signature({"words": parse_type("text")}, {"out": parse_type("image")}, {})


def targets(endpoint: Endpoint) -> dict[str, str]:
    return {f.name: f.target for f in endpoint.fields}


def accept(endpoint: Endpoint, **fields: Any) -> Accepted:
    return validate(endpoint, {"prompt": "a fox", **fields})


def refuse(endpoint: Endpoint, **fields: Any) -> Violation:
    with pytest.raises(Violation) as caught:
        accept(endpoint, **fields)
    return caught.value


# --- binding ----------------------------------------------------------------------------------------------------------


def test_params_go_under_the_fields_of_the_api_and_keep_their_own_names() -> None:
    found = targets(generations())
    assert found["num_inference_steps"] == found["steps"] == "param steps"
    assert found["guidance_scale"] == found["guidance"] == "knob paint.guidance"
    assert (found["size"], found["hue"], found["seed"]) == ("param size", "param hue", "seed")


def test_inputs_go_under_the_fields_of_the_api() -> None:
    found = targets(edits())
    assert (found["prompt"], found["negative_prompt"]) == ("input prompt", "input negative")
    assert (found["image"], found["image[1]"], found["mask"]) == ("input photo", "input second", "input mask")
    assert edits().field("image").required  # type: ignore[union-attr]
    assert "image" not in targets(generations())
    assert targets(videos())["input_reference"] == "input first"


def test_a_param_beside_an_open_key_of_that_field_keeps_its_own_name() -> None:
    knob = Knob("other", "steps", "num_inference_steps", parse_type("int"), Range(1, 9), 4, "")
    found = targets(bind("images.generations", replace(PAINTER, knobs=(*PAINTER.knobs, knob))))
    assert (found["steps"], found["num_inference_steps"]) == ("param steps", "knob other.steps")


def test_an_input_that_no_field_of_the_api_carries_has_one_of_its_own() -> None:
    inputs = {"prompt": parse_type("text"), "style": parse_type("text"), "photo": parse_type("image")}
    bound = bind("images.edits", replace(TEXT_TO_IMAGE, inputs=inputs))
    assert (targets(bound)["style"], targets(bound)["image"]) == ("input style", "input photo")
    assert bound.field("style").required  # type: ignore[union-attr]
    last = {"prompt": parse_type("text"), "first": parse_type("image"), "last": parse_type("image?")}
    film = bind("videos", replace(FILM, inputs=last), {"input_reference": "first"})
    assert (targets(film)["input_reference"], targets(film)["last"]) == ("input first", "input last")


def test_the_name_that_an_input_and_the_picture_made_share_is_told_apart() -> None:
    signature = replace(TEXT_TO_IMAGE, inputs={"a": parse_type("text"), "b": parse_type("image")})
    assert targets(bind("images.edits", signature, {"prompt": "a", "image": "b"}))["image"] == "input b"
    assert bind("images.edits", signature, {"image": "out"}).outputs == (("image", "out"),)


@pytest.mark.parametrize(
    ("name", "inputs", "field"),
    [
        ("images.edits", {"prompt": "text"}, "image"),
        ("images.generations", {"prompt": "text", "photo": "image"}, "photo"),
        ("images.generations", {"a": "text", "b": "text"}, "prompt"),
        ("images.generations", {"photo": "image"}, "prompt"),
        ("images.generations", {"prompt": "text", "voice": "audio"}, "voice"),
    ],
)
def test_what_cannot_be_bound_names_the_field(name: str, inputs: dict[str, str], field: str) -> None:
    with pytest.raises(BindError) as caught:
        bind(name, replace(TEXT_TO_IMAGE, inputs={n: parse_type(t) for n, t in inputs.items()}))
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("inputs", "outputs", "endpoints"),
    [
        ({"p": "text"}, {"o": "image"}, ("images.generations",)),
        ({"p": "text", "i": "image"}, {"o": "image"}, ("images.edits",)),
        ({"p": "text", "i": "image?"}, {"o": "image"}, ("images.generations", "images.edits")),
        ({"p": "text"}, {"o": "video<16fps>"}, ("videos",)),
        ({"p": "text", "i": "image"}, {"o": "video<16fps>"}, ("videos",)),
        ({"p": "text"}, {"o": "image", "s": "audio<24kHz>"}, ("audio.speech", "images.generations")),
        ({"i": "image"}, {"o": "image"}, ()),
    ],
)
def test_endpoints_follow_from_the_types(
    inputs: dict[str, str], outputs: dict[str, str], endpoints: tuple[str, ...]
) -> None:
    types = [{name: parse_type(text) for name, text in side.items()} for side in (inputs, outputs)]
    assert offered(Signature(*types, {})) == endpoints


def test_a_video_has_its_sound_where_the_pipeline_makes_one() -> None:
    assert videos().outputs == (("video", "clip"), ("audio", "sound"))
    silent = replace(FILM, outputs={"clip": parse_type("video<16fps>")})
    assert bind("videos", silent, {"input_reference": "first"}).outputs == (("video", "clip"),)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("images.generations", image_generate_params.ImageGenerateParamsBase),
        ("images.edits", image_edit_params.ImageEditParamsBase),
        ("videos", video_create_params.VideoCreateParams),
    ],
)
def test_every_field_of_openai_s_client_is_known(name: str, params: type) -> None:
    api = ENDPOINTS[name]
    known = {api.input, *(e.name for e in api.extras), *(s.name for s in api.standard), *(u.name for u in api.unused)}
    assert params.__annotations__.keys() <= known


# --- values -----------------------------------------------------------------------------------------------------------


def test_given_values_become_arguments() -> None:
    accepted = accept(generations(), size="128x64", steps=9, guidance_scale=2, negative_prompt="", seed=3, n=2)
    assert accepted.arguments == {
        "prompt": "a fox", "size": Size(128, 64), "steps": 9, "guidance_scale": 2.0, "negative": "",
    }  # fmt: skip
    assert (accepted.options["seed"], accepted.options["n"], accepted.options["output_format"]) == (3, 2, "png")


def test_pictures_are_carried_and_not_opened() -> None:
    data = b"anything at all"
    upload = Upload("fox.png", io.BytesIO(data))
    accepted = accept(edits(), image=[upload, bodies.data_url(data)], mask={"image_url": PICTURE})
    assert accepted.arguments["photo"] is upload
    assert accepted.arguments["second"].file.read() == data
    assert accepted.arguments["mask"].file.read() == bodies.picture()


@pytest.mark.parametrize(("seconds", "frames"), [("1", 17), (4, 65), ("10", 161), (0.5, 9), ("0.35", 5), (10.1, 161)])
def test_seconds_are_moved_to_the_nearest_number_of_frames(seconds: Any, frames: int) -> None:
    assert accept(videos(), seconds=seconds).arguments["frames"] == frames


def test_seconds_of_a_pipeline_with_few_lengths() -> None:
    few = replace(FILM, params=FILM.params | {"frames": ParamSpec(parse_type("int"), Choices((33, 81)), 81)})
    endpoint = bind("videos", few, {"input_reference": "first"}, None, videos().slices)
    assert accept(endpoint, seconds="5").arguments["frames"] == 81
    assert accept(endpoint, seconds="2").arguments["frames"] == 33
    assert refuse(endpoint, seconds="4").message == '`seconds` must be in 2.06..5.06, not "4"'


def test_a_length_that_is_said_twice_must_be_the_same() -> None:
    assert accept(videos(), seconds="4", num_frames=65, frames=65).arguments["frames"] == 65


def test_a_video_without_a_rate_has_no_seconds() -> None:
    unknown = replace(FILM, outputs={"clip": parse_type("video")})
    assert "seconds" not in targets(bind("videos", unknown, {"input_reference": "first"}))


def test_a_scale_without_an_adapter_is_refused() -> None:
    choices = parse_type('enum("base", "neon")')
    knobs = (
        Knob("paint", "lora", "lora", choices, None, "base", ""),
        Knob("paint", "lora_scale", "lora_scale", parse_type("float"), Range(-8.0, 8.0), 1.0, ""),
    )
    slices = (Slice("draw", ("out",), ("paint",), ("words", "lora", "lora_scale", "seed")),)
    endpoint = bind("images.generations", replace(TEXT_TO_IMAGE, knobs=knobs), slices=slices)
    assert refuse(endpoint, lora_scale=0.5).field == "lora_scale"
    assert refuse(endpoint, lora_scale=0.5, lora="base").message == "`lora_scale` needs `lora` to name an adapter"
    accept(endpoint, lora_scale=0.5, lora="neon")
    accept(endpoint, lora_scale=1.0)


def test_a_size_without_a_domain_has_a_limit() -> None:
    free = replace(PAINTER, params={"size": ParamSpec(parse_type("size"), None, Size(64, 64))})
    endpoint = bind("images.generations", free, {}, None, generations().slices)
    assert accept(endpoint, size="4096x4096").arguments["size"] == Size(4096, 4096)
    assert str(MAX_PIXELS) in refuse(endpoint, size="4096x4097").message
    assert refuse(endpoint, size="64x64x2").field == "size"


@pytest.mark.parametrize("name", bodies.BAD_GENERATIONS)
def test_a_bad_body_of_generations_is_refused(name: str) -> None:
    body, field = bodies.BAD_GENERATIONS[name]
    with pytest.raises(Violation) as caught:
        validate(generations(), body)
    assert caught.value.field == field


@pytest.mark.parametrize("name", bodies.BAD_EDITS)
def test_a_bad_body_of_edits_is_refused(name: str) -> None:
    body, field = bodies.BAD_EDITS[name]
    with pytest.raises(Violation) as caught:
        validate(edits(), body)
    assert caught.value.field == field


@pytest.mark.parametrize("name", bodies.BAD_VIDEOS)
def test_a_bad_body_of_videos_is_refused(name: str) -> None:
    body, field = bodies.BAD_VIDEOS[name]
    with pytest.raises(Violation) as caught:
        validate(videos(), body, (parse("frames * size.area <= 161 * 4096"),))
    assert caught.value.field == field


@pytest.mark.parametrize("name", bodies.HARMLESS)
def test_fields_that_change_nothing_are_accepted(name: str) -> None:
    assert accept(generations(), **bodies.HARMLESS[name]).arguments == {"prompt": "a fox"}


# --- forms ------------------------------------------------------------------------------------------------------------


def test_a_form_says_what_json_says() -> None:
    upload = Upload("a.png", io.BytesIO())
    form = [
        ("prompt", "7"), ("size", "64x64"), ("n", "2"), ("guidance_scale", "1.5"), ("stream", "true"), ("seed", "12"),
        ("image", upload), ("output_compression", "80"), ("strength", "1"), ("user", "5"),
    ]  # fmt: skip
    assert body_of(edits(), form) == {
        "prompt": "7", "size": "64x64", "n": 2, "guidance_scale": 1.5, "stream": True, "seed": 12,
        "image": upload, "output_compression": 80, "strength": 1, "user": "5",
    }  # fmt: skip


@pytest.mark.parametrize("names", [("image", "image"), ("image[]", "image[]"), ("image[0]", "image[1]")])
def test_several_pictures_are_a_list_however_they_are_called(names: tuple[str, ...]) -> None:
    a, b = Upload("a", io.BytesIO()), Upload("b", io.BytesIO())
    assert body_of(edits(), zip(names, (a, b), strict=True)) == {"image": [a, b]}


def test_one_picture_in_brackets_is_a_list_of_one() -> None:
    a = Upload("a", io.BytesIO())
    assert body_of(edits(), [("image[]", a)]) == {"image": [a]}


def test_an_object_in_a_form() -> None:
    assert body_of(videos(), [("input_reference[image_url]", PICTURE)]) == {"input_reference": {"image_url": PICTURE}}


@pytest.mark.parametrize("text", ["x", "", "1e3.5", "{", "[" * 100_000, "9" * 5000, "NaN", "Infinity", "٣"])
def test_what_is_no_number_stays_a_text_and_is_refused(text: str) -> None:
    assert body_of(edits(), [("n", text)]) == {"n": text}


@pytest.mark.parametrize("name", ["prompt", "n", "input_reference[a]"])
def test_a_field_that_comes_twice_is_refused(name: str) -> None:
    with pytest.raises(Violation) as caught:
        body_of(edits(), [(name, "1"), (name, "2")])
    assert caught.value.field == name.partition("[")[0]


# --- what clients can read --------------------------------------------------------------------------------------------


def schema(content: dict[str, Any], path: str, form: str) -> Any:
    return content["paths"][path]["post"]["requestBody"]["content"][form]["schema"]["properties"]


def test_openapi_has_sizes_pictures_and_forms() -> None:
    made = openapi(painter())
    assert schema(made, "/v1/images/generations", "application/json")["num_inference_steps"]["maximum"] == 100
    form = schema(made, "/v1/images/edits", "multipart/form-data")
    assert form["image"]["anyOf"][1]["maxItems"] == 2
    assert form["mask"]["contentMediaType"] == "application/octet-stream"
    assert schema(made, "/v1/images/edits", "application/json")["mask"]["type"] == "string"
    assert "/v1/images/files/{name}" in made["paths"]


def test_openapi_has_the_routes_of_jobs() -> None:
    paths = openapi(studio())["paths"]
    assert paths["/v1/videos"].keys() == {"post", "get"}
    assert paths["/v1/videos/{id}"].keys() == {"get", "delete"}
    assert {"/v1/videos/{id}/content", "/v1/videos/sync"} <= paths.keys()
    sizes = schema({"paths": paths}, "/v1/videos", "application/json")["size"]["enum"]
    assert sizes == ["64x64", "96x64", "auto"]
