"""Pictures as arrays and as tensors."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from omnic.expr import Size


def to_pixels(x: Tensor) -> NDArray[np.uint8]:
    """[3, H, W] in -1..1 -> uint8 [H, W, 3]."""
    unit = (x.float() / 2 + 0.5).clamp(0, 1)
    return (unit * 255).round().to(torch.uint8).permute(1, 2, 0).contiguous().cpu().numpy()


def to_frames(x: Tensor) -> NDArray[np.uint8]:
    """[1, 3, n, H, W] in -1..1 -> uint8 [n, H, W, 3]."""
    return np.stack([to_pixels(frame) for frame in x[0].unbind(1)])


def from_pixels(picture: NDArray[np.uint8], size: Size) -> Tensor:
    """uint8 [H, W, 3 or 4] -> float32 [1, 3, height, width] in -1..1, resized (Lanczos) if it is of another size."""
    from PIL import Image

    image = Image.fromarray(picture).convert("RGB")
    if image.size != (size.width, size.height):
        image = image.resize((size.width, size.height), Image.Resampling.LANCZOS)
    values = torch.from_numpy(np.array(image, dtype=np.float32) / 255)
    return (values * 2 - 1).permute(2, 0, 1)[None]
