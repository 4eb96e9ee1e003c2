"""Pictures as files: `encode` to png, jpeg and webp, and `read`, which bounds what a file may unpack to.

In work a picture is an array, uint8 [height, width, 3], or [height, width, 4] with an alpha channel.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

from omnic.runtime.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

_TURNED = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_ORIENTATION = 0x0112
_WHITE = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class Format:
    """How a picture is encoded. `suffixes` are those of its files, the usual one first."""

    name: str
    content_type: str
    suffixes: tuple[str, ...]


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        f.name: f
        for f in (
            Format("png", "image/png", (".png",)),
            Format("jpeg", "image/jpeg", (".jpg", ".jpeg")),
            Format("webp", "image/webp", (".webp",)),
        )
    }
)


def format_of(suffix: str) -> Format:
    """The format of files that end in `suffix`. Raises RequestError."""
    found = next((f for f in FORMATS.values() if suffix.lower() in f.suffixes), None)
    if found is None:
        known = ", ".join(s for f in FORMATS.values() for s in f.suffixes)
        raise RequestError(f"`{suffix}` is no suffix of a picture; there are {known}")
    return found


def encode(pixels: Pixels, format: str, quality: int | None = None) -> bytes:
    """A whole file. `quality` (0 to 100, the best) is for jpeg and webp; png loses nothing. A jpeg has no alpha
    channel, so there transparent pixels are laid over white."""
    from PIL import Image

    image = Image.fromarray(pixels)
    file = io.BytesIO()
    quality = 100 if quality is None else quality
    match format:
        case "png":
            image.save(file, "PNG", compress_level=4)
        case "webp":
            image.save(file, "WEBP", quality=quality, exact=True)
        case "jpeg":
            image = _over_white(image) if image.mode == "RGBA" else image
            image.save(file, "JPEG", quality=quality, subsampling=0 if quality > 95 else 2)
        case _:
            raise ValueError(f"`{format}` is not a format of pictures")
    return file.getvalue()


def size_of(file: BinaryIO, field: str, max_pixels: int) -> tuple[int, int]:
    """Width and height of the picture in `file`, as it is to be seen, from its header alone.

    Raises RequestError, naming `field`, for what is no png, jpeg or webp, is animated, or has over `max_pixels`.
    """
    image = _opened(file, field, max_pixels)
    width, height = image.size
    return (height, width) if _exif(image) in _TURNED else (width, height)


def read(file: BinaryIO, field: str, max_pixels: int, *, alpha: bool = False) -> Pixels:
    """The picture in `file`, upright: uint8 [height, width, 3], or [height, width, 4] if it has an alpha channel and
    `alpha` asks for it. Raises RequestError, naming `field`, for what cannot be read."""
    import numpy as np
    from PIL import ImageOps

    image = _opened(file, field, max_pixels)
    try:
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits a channel, which Pillow would clip
            image = _narrowed(image)
        transparent = image.has_transparency_data
        return np.array(image.convert("RGBA" if alpha and transparent else "RGB"))
    except MemoryError:
        raise
    except Exception as error:  # whatever a decoder makes of a damaged file
        raise RequestError(f"`{field}` is a damaged picture: {error}", field, code="invalid_image") from None


def _opened(file: BinaryIO, field: str, max_pixels: int) -> Any:
    from PIL import Image

    try:
        file.seek(0)
        image: Any = Image.open(file, formats=[f.name.upper() for f in FORMATS.values()])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise RequestError(f"`{field}` may have at most {max_pixels} pixels", field, code="invalid_image") from None
    except MemoryError:
        raise
    except Exception:
        known = ", ".join(FORMATS)
        raise RequestError(f"`{field}` is no picture ({known})", field, code="invalid_image") from None
    width, height = image.size
    if width * height > max_pixels:
        message = f"`{field}` may have at most {max_pixels} pixels; it has {width}x{height}"
        raise RequestError(message, field, code="invalid_image")
    if getattr(image, "n_frames", 1) > 1:
        raise RequestError(f"`{field}` is an animation; a picture is needed", field, code="invalid_image")
    return image


def _exif(image: Any) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata; `read` does not use it either
        return 1


def _narrowed(image: Any) -> Any:
    import numpy as np
    from PIL import Image

    return Image.fromarray((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8))


def _over_white(image: Any) -> Any:
    from PIL import Image

    ground = Image.new("RGB", image.size, _WHITE)
    ground.paste(image, mask=image.getchannel("A"))
    return ground
