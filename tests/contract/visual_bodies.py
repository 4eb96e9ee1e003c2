"""Bodies that the endpoints of pictures and videos must refuse, with the field at fault, and fields that must not
matter. They are held against `tests.painter`."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image

from tests.contract.bodies import Cases


def picture(width: int = 40, height: int = 30, mode: str = "RGB", format: str = "PNG") -> bytes:
    """The bytes of a file."""
    file = io.BytesIO()
    Image.new(mode, (width, height)).save(file, format)
    return file.getvalue()


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


PICTURE = data_url(picture())


def _draw(field: str | None, **fields: Any) -> tuple[dict[str, Any], str | None]:
    return {"prompt": "a fox", **fields}, field


# what any endpoint of pictures refuses
_PICTURES: Cases = {
    "an unknown field": _draw("colour", colour="red"),
    "a misspelt field": _draw("num_inference_step", num_inference_step=4),
    "n 0": _draw("n", n=0),
    "n negative": _draw("n", n=-1),
    "n too many": _draw("n", n=11),
    "n a text": _draw("n", n="two"),
    "n a fraction": _draw("n", n=1.5),
    "n true": _draw("n", n=True),
    "size huge": _draw("size", size="100000x10000"),
    "size none": _draw("size", size="0x0"),
    "size negative": _draw("size", size="-8x8"),
    "size a word": _draw("size", size="abc"),
    "size off the grid": _draw("size", size="513x512"),
    "size too small": _draw("size", size="48x64"),
    "size one side": _draw("size", size="64"),
    "size deep": _draw("size", size="64x64x64"),
    "size a number": _draw("size", size=64),
    "size a list": _draw("size", size=[64, 64]),
    "size empty": _draw("size", size=""),
    "size endless": _draw("size", size="9" * 5000 + "x64"),
    "no steps": _draw("num_inference_steps", num_inference_steps=0),
    "steps negative": _draw("num_inference_steps", num_inference_steps=-4),
    "steps too many": _draw("num_inference_steps", num_inference_steps=101),
    "steps a text": _draw("num_inference_steps", num_inference_steps="many"),
    "steps by their other name": _draw("steps", steps=0),
    "steps twice and different": _draw("steps", num_inference_steps=3, steps=4),
    "guidance negative": _draw("guidance_scale", guidance_scale=-1),
    "guidance too high": _draw("guidance_scale", guidance_scale=20.5),
    "guidance a text": _draw("guidance_scale", guidance_scale="high"),
    "guidance of a thousand digits": _draw("guidance_scale", guidance_scale=10**1000),
    "strength too high": _draw("strength", strength=1.1),
    "strength negative": _draw("strength", strength=-0.1),
    "a negative seed": _draw("seed", seed=-1),
    "a seed too large": _draw("seed", seed=2**63),
    "a seed that is a fraction": _draw("seed", seed=0.5),
    "a param outside its values": _draw("hue", hue="purple"),
    "negative prompt a list": _draw("negative_prompt", negative_prompt=["x"]),
    "an unknown answer": _draw("response_format", response_format="file"),
    "an unknown format": _draw("output_format", output_format="gif"),
    "a format in capitals": _draw("output_format", output_format="PNG"),
    "compression too high": _draw("output_compression", output_compression=101, output_format="jpeg"),
    "compression negative": _draw("output_compression", output_compression=-1, output_format="webp"),
    "compression of png": _draw("output_compression", output_compression=50),
    "stream a text": _draw("stream", stream="yes"),
    "partial pictures without a stream": _draw("partial_images", partial_images=2),
    "too many partial pictures": _draw("partial_images", stream=True, partial_images=4),
    "addresses in a stream": _draw("response_format", stream=True, response_format="url"),
    "a quality": _draw("quality", quality="high"),
    "a style": _draw("style", style="vivid"),
    "a transparent background": _draw("background", background="transparent"),
    "an animation": _draw("frame_count", frame_count=4),
    "a user that is a number": _draw("user", user=7),
    "model a number": _draw("model", model=7),
}
_PROMPTS: Cases = {
    "prompt null": ({"prompt": None}, "prompt"),
    "prompt empty": ({"prompt": ""}, "prompt"),
    "prompt blank": ({"prompt": " \n\t\u2003"}, "prompt"),
    "prompt a number": ({"prompt": 7}, "prompt"),
    "prompt a list": ({"prompt": ["a fox"]}, "prompt"),
    "prompt an object": ({"prompt": {"text": "a fox"}}, "prompt"),
    "prompt too long": ({"prompt": "a" * 32_001}, "prompt"),
}
_NO_OBJECT: Cases = {"a list": ([], None), "a text": ("a fox", None), "null": (None, None), "nothing": ({}, "prompt")}

BAD_GENERATIONS: Cases = {
    **_NO_OBJECT,
    **_PROMPTS,
    **_PICTURES,
    "a picture": _draw("image", image=PICTURE),
    "a field of another endpoint": _draw("seconds", seconds="4"),
}


def _edit(body: Any, field: str | None) -> tuple[Any, str | None]:
    return ({"image": PICTURE} | body if isinstance(body, dict) else body), field


BAD_EDITS: Cases = {
    **{name: _edit(body, field) for name, (body, field) in {**_NO_OBJECT, **_PROMPTS, **_PICTURES}.items()},
    "no picture": _draw("image"),
    "picture null": _draw("image", image=None),
    "picture a number": _draw("image", image=7),
    "picture empty": _draw("image", image=""),
    "picture a word": _draw("image", image="fox.png"),
    "picture by address": _draw("image", image="http://127.0.0.1/fox.png"),
    "picture in no base64": _draw("image", image="data:image/png;base64,!!!!"),
    "picture without base64": _draw("image", image="data:image/png,abc"),
    "no pictures": _draw("image", image=[]),
    "too many pictures": _draw("image", image=[PICTURE] * 3),
    "a bad second picture": _draw("image[1]", image=[PICTURE, 7]),
    "an object of another form": _draw("image", image={"file_id": "file-1"}),
    "mask a word": _draw("mask", image=PICTURE, mask="mask.png"),
    "several masks": _draw("mask", image=PICTURE, mask=[PICTURE, PICTURE]),
    "markup": _draw("markup", image=PICTURE, markup=PICTURE),
    "high fidelity": _draw("input_fidelity", image=PICTURE, input_fidelity="high"),
}
BAD_PICTURES: Cases = {  # known once they are looked at
    "no picture at all": _draw("image", image=data_url(b"hello there")),
    "an empty file": _draw("image", image=data_url(b"")),
    "a picture cut short": _draw("image", image=data_url(picture()[:40])),
    "a damaged picture": _draw("image", image=data_url(picture(60, 60)[:-30])),
    "a picture too large": _draw("image", image=data_url(picture(300, 300))),
    "a second picture too large": _draw("image[1]", image=[PICTURE, data_url(picture(1000, 66))]),
    "a picture of another format": _draw("image", image=data_url(picture(format="GIF"))),
    "a mask of another size": _draw("mask", image=PICTURE, mask=data_url(picture(30, 30, "RGBA"))),
}
BAD_VIDEOS: Cases = {
    **_NO_OBJECT,
    **_PROMPTS,
    "an unknown field": _draw("colour", colour="red"),
    "a field of another endpoint": _draw("n", n=1),
    "size huge": _draw("size", size="100000x10000"),
    "size none": _draw("size", size="0x0"),
    "size negative": _draw("size", size="-8x8"),
    "size a word": _draw("size", size="abc"),
    "another size": _draw("size", size="64x96"),
    "size a number": _draw("size", size=64),
    "seconds 0": _draw("seconds", seconds=0),
    "seconds too few": _draw("seconds", seconds="0.1"),
    "seconds too many": _draw("seconds", seconds="12"),
    "seconds negative": _draw("seconds", seconds=-4),
    "seconds a word": _draw("seconds", seconds="long"),
    "seconds true": _draw("seconds", seconds=True),
    "seconds a list": _draw("seconds", seconds=[4]),
    "seconds endless": _draw("seconds", seconds="1e400"),
    "no frames": _draw("num_frames", num_frames=0),
    "frames off the grid": _draw("num_frames", num_frames=10),
    "frames too many": _draw("num_frames", num_frames=165),
    "frames by their other name": _draw("frames", frames=6),
    "frames and seconds that differ": _draw("seconds", num_frames=9, seconds=4),
    "too much in all": _draw("num_frames", size="96x64", num_frames=161),
    "no steps": _draw("num_inference_steps", num_inference_steps=0),
    "steps too many": _draw("num_inference_steps", num_inference_steps=201),
    "steps a text": _draw("num_inference_steps", num_inference_steps="4.5"),
    "guidance": _draw("guidance_scale", guidance_scale=4),
    "a negative seed": _draw("seed", seed=-1),
    "a seed that is a text": _draw("seed", seed="one"),
    "negative prompt a number": _draw("negative_prompt", negative_prompt=1),
    "reference a word": _draw("input_reference", input_reference="first.png"),
    "reference by address": _draw("input_reference.image_url", input_reference={"image_url": "https://x.test/a.png"}),
    "reference by file": _draw("input_reference", input_reference={"file_id": "file-1"}),
    "references": _draw("input_reference", input_reference=[PICTURE, PICTURE]),
    "stream a text": _draw("stream", stream="yes"),
    "model a number": _draw("model", model=7),
    "a user that is a list": _draw("user", user=["bo"]),
}

HARMLESS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "nulls": {"size": None, "n": None, "style": None, "quality": None, "negative_prompt": None},
    "the usual size": {"size": "auto"},
    "the usual quality": {"quality": "auto"},
    "an opaque background": {"background": "opaque"},
    "moderation": {"moderation": "low"},
    "user": {"user": "bo", "safety_identifier": "x"},
    "one": {"n": 1},
    "compression at its best": {"output_compression": 100},
}
