"""Queries, keys and values of two streams for joint attention: normed by head, turned, side by side."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _joint(
    image, text, gains, cosine, sine, out, epsilon, of_image, of_text, HEADS: tl.constexpr, DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0)  # in one row's joint sequence: the image, then the text
    row = tl.program_id(1).to(tl.int64)
    which = tl.program_id(2)  # 0 query, 1 key, 2 value
    heads = tl.arange(0, BLOCK)[:, None]
    columns = tl.arange(0, DIM)
    within = (heads < HEADS) & (columns[None, :] >= 0)
    width = HEADS * DIM
    at = heads * DIM + columns[None, :]
    if place < of_image:
        source = image + (row * of_image + place) * 3 * width + which * width
    else:
        source = text + (row * of_text + place - of_image) * 3 * width + which * width
    rows = tl.num_programs(1)
    target = out + ((which * rows + row) * (of_image + of_text) + place) * width
    value = tl.load(source + at, mask=within, other=0.0)
    if which < 2:
        wide = value.to(tl.float32)
        norm = tl.rsqrt(tl.sum(wide * wide, axis=1) / DIM + epsilon)[:, None]
        gain = tl.load(gains + ((place >= of_image).to(tl.int32) * 2 + which) * DIM + columns).to(tl.float32)
        wide = (wide * norm).to(value.dtype).to(tl.float32) * gain[None, :]
        even, odd = tl.split(tl.reshape(wide, (BLOCK, DIM // 2, 2)))  # a pair that turns together lies side by side
        half = tl.arange(0, DIM // 2)
        c = tl.load(cosine + place * (DIM // 2) + half)[None, :]
        s = tl.load(sine + place * (DIM // 2) + half)[None, :]
        turned = tl.reshape(tl.join(even * c - odd * s, even * s + odd * c), (BLOCK, DIM))
        value = turned.to(value.dtype)
    tl.store(target + at, value, mask=within)


def joint_rope(
    image: Tensor, text: Tensor, gains: Tensor, cosine: Tensor, sine: Tensor, out: Tensor, epsilon: float
) -> None:
    """image: [rows · places, 3 · heads · dim], text: the same of the text's places; queries first, then keys, values.

    Queries and keys are RMS-normed by head, times `gains` [4, dim] (query and key of the image, of the text), and
    turned by `cosine` and `sine`, float32 [image and text places, dim / 2], in pairs that lie side by side.
    out: [3, rows, image and text places, heads, dim]. All contiguous; float32 but for what is stored.
    """
    _, rows, places, heads, dim = out.shape
    of_image = image.shape[0] // rows
    _joint[(places, rows, 3)](
        image, text, gains, cosine, sine, out, epsilon, of_image, places - of_image, HEADS=heads, DIM=dim,
        BLOCK=triton.next_power_of_2(heads), num_warps=4,
    )  # fmt: skip
