"""silu(gate) · up of a fused gate-and-up product: `gated`."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from omnic.runtime.kernels.gemv import launched

_BLOCK = 1024


@triton.jit
def _gated(both, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    within = columns < WIDTH
    gate = tl.load(both + row * 2 * WIDTH + columns, mask=within, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * WIDTH + WIDTH + columns, mask=within, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + columns, result.to(out.dtype.element_ty), mask=within)


def gated(both: Tensor, out: Tensor, *, dependent: bool = False) -> None:
    """both: [rows, 2 · width], the gates first; out: [rows, width]; contiguous."""
    rows, width = out.shape
    _gated[(rows, triton.cdiv(width, _BLOCK))](
        both, out, WIDTH=width, BLOCK=_BLOCK, DEPENDENT=dependent, num_warps=4, **launched(dependent)
    )
