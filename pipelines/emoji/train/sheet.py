"""A sheet of pictures side by side: the font's, the one painted from the name, the one painted from a paraphrase."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

_COLUMNS, _GAP, _LINE, _SIDE = 6, 8, 13, 64
_WIDTH, _HEIGHT = 3 * _SIDE + 2 * _GAP, _SIDE + 2 * _LINE + _GAP

Picture = NDArray[np.uint8]


def write(file: Path, cells: Sequence[tuple[str, str, Picture, Picture, Picture]]) -> None:
    """Cells are (name, paraphrase, the font's picture, the name's, the paraphrase's)."""
    rows = -(-len(cells) // _COLUMNS)
    sheet = Image.new("RGB", (_COLUMNS * _WIDTH + _GAP, rows * _HEIGHT + _GAP), "white")
    draw, small = ImageDraw.Draw(sheet), ImageFont.load_default(10)
    for i, (name, paraphrase, *pictures) in enumerate(cells):
        left, top = _GAP + i % _COLUMNS * _WIDTH, _GAP + i // _COLUMNS * _HEIGHT
        for j, picture in enumerate(pictures):
            sheet.paste(Image.fromarray(picture), (left + j * _SIDE, top))
        for j, (line, colour) in enumerate(((name, "black"), (paraphrase, "#555555"))):
            draw.text((left, top + _SIDE + j * _LINE), _cut(line, draw, small), colour, font=small)
    sheet.quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)


def _cut(line: str, draw: ImageDraw.ImageDraw, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """As much of a line as fits a cell."""
    short = line
    while draw.textlength(short, font=font) > 3 * _SIDE:
        short = short[:-2].rstrip(" …") + "…"
    return short
