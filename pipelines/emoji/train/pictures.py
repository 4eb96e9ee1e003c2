"""The pictures: emoji of Google's Noto Color Emoji (OFL 1.1), as Debian's package fonts-noto-color-emoji has them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

FONT = Path("/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf")
SIZE = 64  # pixels a side
_STRIKE = 109  # the one size in pixels that the font's bitmaps have
_VARIATION = "\ufe0f"  # asks for the coloured form; this font has no other


def render(emoji: Sequence[str], font: Path = FONT) -> NDArray[np.uint8]:
    """RGB pictures [N, 64, 64, 3] on white."""
    if not font.exists():
        raise SystemExit(f"{font} is not there: apt-get install fonts-noto-color-emoji")
    face = ImageFont.truetype(font, _STRIKE)
    return np.stack([_render(e.replace(_VARIATION, ""), face) for e in emoji])


def _render(emoji: str, face: ImageFont.FreeTypeFont) -> NDArray[np.uint8]:
    left, top, right, bottom = (round(edge) for edge in face.getbbox(emoji))
    side = max(right - left, bottom - top)
    canvas = Image.new("RGB", (side, side), "white")
    corner = ((side - right + left) // 2 - left, (side - bottom + top) // 2 - top)
    ImageDraw.Draw(canvas).text(corner, emoji, font=face, embedded_color=True)
    picture = np.asarray(canvas.resize((SIZE, SIZE), Image.Resampling.LANCZOS))
    if picture.min() > 250:
        raise SystemExit(f"the font has no picture of {emoji}")
    return picture


def main() -> None:
    """`pictures.py FILE.npy` writes the pictures, for a machine that lacks the font."""
    import captions

    np.save(sys.argv[1], render([entry.emoji for entry in captions.load()]))


if __name__ == "__main__":
    main()
