"""Outputs of `omnic run` that are several pictures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from omnic.cli import outputs
from omnic.contract.types import Type
from tests import assistant

MANIFEST = replace(assistant.assistant(), outputs={"pages": Type("image")})
PAGES = [np.full((2, 3, 3), shade, np.uint8) for shade in (10, 20, 30)]


def test_several_pictures_are_a_file_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs.write(MANIFEST, {"pages": str(tmp_path / "my.story.png")}, {"pages": PAGES})
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["my.story-1.png", "my.story-2.png", "my.story-3.png"]
    assert [Image.open(file).getpixel((0, 0)) for file in files] == [(10,) * 3, (20,) * 3, (30,) * 3]
    assert capsys.readouterr().err.count("wrote ") == 3


def test_one_picture_keeps_the_name_it_was_given(tmp_path: Path) -> None:
    outputs.write(MANIFEST, {"pages": str(tmp_path / "a.png")}, {"pages": PAGES[0]})
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
