"""Where weights come from: `Shards` reads safetensors by range, `Seeded` makes random ones.

Both write straight into memory the family has already allocated, so loading never holds a weight twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from omnic.runtime.staging import Staging
from omnic.runtime.weights import Damaged, Missing

_HELD = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_STORED = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_DRAWN_HERE = 1 << 20  # random elements; more of them are drawn where they will live
_PART_BYTES = 8 << 20  # at most this much is held beside the destination when dtypes differ

Loaded = Callable[[int, int], None]
"""Called while loading: bytes loaded, bytes to load."""


class Source(Protocol):
    """Weights by name."""

    def __contains__(self, name: object) -> bool: ...

    def read(self, name: str, into: Tensor) -> None:
        """Fills `into` (contiguous, of the tensor's shape, any float dtype and device). Raises Damaged if not."""
        ...


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype called `name` in a manifest: float32 or bfloat16."""
    return _HELD[name]


class Shards:
    """The tensors of safetensors files, read by range: no mapping of the file, no copy of it in memory."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Reads the headers. Raises Damaged for a file that is cut short or is not safetensors."""
        if not files:
            raise Missing("the model has no .safetensors file")
        self._where: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        self._staging: Staging | None = None  # where tensors live on a GPU
        for path in files:
            start, header = _header(path)
            self._where |= {name: (path, start, entry) for name, entry in header.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(entry["shape"]) for name, (_, _, entry) in self._where.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._where

    def read(self, name: str, into: Tensor) -> None:
        try:
            path, start, entry = self._where[name]
        except KeyError:
            raise Damaged(f"the checkpoint has no tensor `{name}`") from None
        if tuple(entry["shape"]) != tuple(into.shape):
            shapes = f"{entry['shape']}, its config says {list(into.shape)}"
            raise Damaged(f"{path}: tensor `{name}` has shape {shapes}")
        dtype = _STORED.get(entry["dtype"])
        if dtype is None:
            raise Damaged(f"{path}: tensor `{name}` is stored as {entry['dtype']}; omnic reads {', '.join(_STORED)}")
        with path.open("rb", buffering=0) as file:
            file.seek(start + entry["data_offsets"][0])
            if into.device.type != "cpu":
                self._staging = self._staging or Staging(into.device)
                self._staging.fill(into, dtype, lambda part: _fill(file, part, path))
                return
            if dtype == into.dtype:
                _fill(file, into, path)
                return
            flat = into.view(-1)
            step = max(1, _PART_BYTES // dtype.itemsize)
            for at in range(0, flat.numel(), step):
                part = torch.empty(min(step, flat.numel() - at), dtype=dtype)
                _fill(file, part, path)
                flat[at : at + len(part)] = part


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            if size < 8 or length > size - 8:
                raise ValueError
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            ends = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Damaged(f"{path} is damaged: its header is not that of a safetensors file") from None
    if 8 + length + ends > size:
        raise Damaged(f"{path} is damaged: its tensors end at byte {8 + length + ends}, the file at {size}")
    return 8 + length, header


def _fill(file: Any, into: Tensor, path: Path) -> None:
    view = into.view(-1).view(torch.uint8).numpy().data
    while view:
        count = file.readinto(view)
        if not count:
            raise Damaged(f"{path} is damaged: it ends early")
        view = view[count:]


class Seeded:
    """Random weights that depend on the seed, the tensor's name and its shape alone, not on order or dtype.

    Large ones that are for a GPU are drawn there, and are other numbers than on a CPU.

    Matrices and convolutions are normal with variance 1 / what each output sums over, so that activations keep their
    size through any depth; vectors are ones (norms), or small where they are biases.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __contains__(self, name: object) -> bool:
        return True

    def read(self, name: str, into: Tensor) -> None:
        digest = hashlib.sha256(f"{self._seed} {name}".encode()).digest()
        device = into.device if into.numel() > _DRAWN_HERE else torch.device("cpu")
        generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        if into.ndim == 1 and not name.endswith("bias"):
            into.fill_(1.0)
            return
        scale = 0.02 if into.ndim == 1 else prod(into.shape[1:]) ** -0.5
        rows = into.view(1, -1) if into.ndim == 1 else into.view(-1, into.shape[-1])
        step = max(1, _PART_BYTES // (4 * rows.shape[1]))
        for at in range(0, len(rows), step):
            part = torch.empty(rows[at : at + step].shape, dtype=torch.float32, device=device)
            rows[at : at + step] = part.normal_(0, scale, generator=generator)
