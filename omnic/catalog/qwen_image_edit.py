"""qwen_image_edit: Qwen-Image-Edit, which paints beside a picture that its text encoder sees as well."""

from __future__ import annotations

from omnic.catalog.diffusers import Index
from omnic.catalog.part import Part
from omnic.catalog.qwen_image import made


def parts(index: Index) -> tuple[Part, ...]:
    return made(index, edits=True)
