"""Pictures written to files and read from them."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from omnic.runtime.errors import RequestError
from omnic.runtime.picture_files import FORMATS, encode, format_of, read, size_of

MANY = 1 << 20


def noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def smooth(height: int, width: int) -> NDArray[np.uint8]:
    rows, columns = np.mgrid[0:height, 0:width]
    return np.stack([rows * 200 // height, columns * 200 // width, (rows + columns) % 64], -1).astype(np.uint8)


def saved(image: Image.Image, format: str = "PNG", **options: object) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file


def test_png_loses_nothing() -> None:
    for pixels in (noise(20, 30, 3), noise(7, 5, 4)):
        assert (read(io.BytesIO(encode(pixels, "png")), "image", MANY, alpha=True) == pixels).all()


@pytest.mark.parametrize("format", FORMATS)
def test_the_bytes_are_of_the_format(format: str) -> None:
    data = encode(smooth(32, 48), format)
    marks = {"png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "webp": b"RIFF"}
    assert data.startswith(marks[format])
    back = read(io.BytesIO(data), "image", MANY).astype(int)
    assert np.abs(back - smooth(32, 48)).mean() < 4


@pytest.mark.parametrize("format", ["jpeg", "webp"])
def test_quality_costs_bytes(format: str) -> None:
    sizes = [len(encode(noise(64, 64, 3), format, quality)) for quality in (0, 50, 100)]
    assert sizes == sorted(sizes)
    assert len(encode(noise(64, 64, 3), format)) == sizes[2]


def test_a_jpeg_shows_transparent_pixels_over_white() -> None:
    clear = np.zeros((8, 8, 4), np.uint8)
    assert read(io.BytesIO(encode(clear, "jpeg")), "image", MANY).min() > 250


def test_a_picture_is_read_without_its_alpha_channel_unless_that_is_wanted() -> None:
    file = io.BytesIO(encode(noise(8, 8, 4), "webp"))
    assert read(file, "image", MANY).shape == (8, 8, 3)
    assert read(file, "mask", MANY, alpha=True).shape == (8, 8, 4)
    assert read(io.BytesIO(encode(noise(8, 8, 3), "png")), "mask", MANY, alpha=True).shape == (8, 8, 3)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
def test_every_kind_of_pixel_becomes_rgb(mode: str) -> None:
    image = Image.new(mode, (6, 4), 0 if mode in ("1", "L", "P", "I;16") else None)
    pixels = read(saved(image, "JPEG" if mode == "CMYK" else "PNG"), "image", MANY)
    assert (pixels.shape, pixels.dtype) == ((4, 6, 3), np.uint8)


def test_sixteen_bits_are_narrowed_and_not_clipped() -> None:
    wide = Image.fromarray(np.full((4, 4), 40_000, np.uint16))
    assert (read(saved(wide), "image", MANY) == 40_000 >> 8).all()


def test_a_picture_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    file = saved(Image.new("RGB", (30, 20)), "JPEG", exif=exif)
    assert size_of(file, "image", MANY) == (20, 30)
    assert read(file, "image", MANY).shape == (30, 20, 3)


BAD = {
    "nothing": b"",
    "text": b"hello " * 100,
    "zeros": bytes(1000),
    "a header alone": encode(noise(40, 40, 3), "png")[:33],
    "half": encode(noise(40, 40, 3), "png")[:2000],
    "half a jpeg": encode(noise(40, 40, 3), "jpeg")[:800],
    "damage": encode(noise(40, 40, 3), "png").replace(b"IDAT", b"IDAX"),
    "a gif": saved(Image.new("P", (4, 4)), "GIF").getvalue(),
    "a drawing": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_a_fault_of_the_request(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(io.BytesIO(BAD[name]), "image", MANY)
    assert (caught.value.field, caught.value.code, caught.value.status) == ("image", "invalid_image", 400)


def test_a_picture_that_unpacks_to_too_much_is_refused_by_its_header() -> None:
    bomb = saved(Image.new("1", (20_000, 20_000)))
    assert len(bomb.getvalue()) < 100_000
    with pytest.raises(RequestError, match="at most 1048576 pixels"):
        size_of(bomb, "image", MANY)


def test_an_animation_is_no_picture() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    with pytest.raises(RequestError, match="animation"):
        size_of(saved(frames[0], "WEBP", save_all=True, append_images=frames[1:]), "image", MANY)


def test_formats_by_suffix() -> None:
    assert [format_of(s).name for s in (".png", ".jpg", ".JPEG", ".webp")] == ["png", "jpeg", "jpeg", "webp"]
    with pytest.raises(RequestError, match=r"\.gif"):
        format_of(".gif")
