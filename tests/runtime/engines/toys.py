"""A small module, calls of it, and the engine of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from omnic.runtime.engines import store
from omnic.runtime.engines.artefact import Input
from omnic.runtime.engines.builder import Settings
from omnic.runtime.engines.calls import Call, ranges
from omnic.runtime.engines.export import export
from omnic.runtime.engines.fake import Reference
from omnic.runtime.engines.store import Obtained


class Toy(nn.Module):
    """Rows to rows, and beside them a word and what it was told."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor, *, scale: float = 1.0, more: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
        made = self.inner(x).tanh() * scale
        if more is not None:
            made = made + more["bias"]
        return {"rows": made, "word": "kept", "mean": made.mean(0)}


def call(rows: int, dtype: torch.dtype = torch.float32, **more: Any) -> Call:
    torch.manual_seed(rows)
    return Call.of((torch.randn(rows, 8, dtype=dtype),), more)


def obtained(
    builder: Reference, folder: Path, *rows: int, seed: int = 0, dtype: torch.dtype = torch.float32,
    settings: Settings | None = None,
) -> Obtained:  # fmt: skip
    """The engine of a `Toy` for batches of so many rows."""
    calls = [call(n, dtype) for n in rows]
    (shapes,) = ranges(calls)
    folder.mkdir(parents=True, exist_ok=True)
    exported = export(Toy(seed).to(dtype).eval(), calls[0], (shapes,), folder)
    inputs = [Input(calls[0].names[0], str(dtype).removeprefix("torch."), shapes)]
    return store.obtain("Toy stage.rows", exported, inputs, builder, settings or Settings())
