"""Headers of safetensors files, read as bytes: tensor names, shapes and dtypes without a weight."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path

from omnic.catalog.part import CatalogError

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "C64": 64,
}  # fmt: skip
_MAX_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor as a header declares it. `shape` is the order torch has: rows first."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)


def header(path: Path) -> tuple[Tensor, ...]:
    """The tensors of a file, in the order of its header.

    Raises CatalogError (`bad-checkpoint`) unless the header is whole, its offsets cover the data without gap or
    overlap, and the file is as long as they say.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise _bad(path, f"its header would be {length} bytes long, the file is {size}")
            declared = json.loads(file.read(length))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise _bad(path, "its header is not JSON") from None
    if not isinstance(declared, dict):
        raise _bad(path, "its header is not a JSON object")
    tensors, spans = [], []
    for name, entry in declared.items():
        if name == "__metadata__":
            continue
        try:
            tensor = Tensor(name, entry["dtype"], tuple(entry["shape"]))
            start, end = entry["data_offsets"]
            bits = DTYPE_BITS[tensor.dtype]
            if any(type(n) is not int or n < 0 for n in (*tensor.shape, start, end)):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise _bad(path, f"its header does not describe `{name}`") from None
        if end - start != (tensor.elements * bits + 7) // 8:
            raise _bad(path, f"`{name}` is {tensor.dtype} {list(tensor.shape)} but {end - start} bytes long")
        tensors.append(tensor)
        spans.append((start, end, name))
    at = 0
    for start, end, name in sorted(spans):
        if start != at:
            raise _bad(path, f"there is a gap or an overlap before `{name}`")
        at = end
    if at != size - 8 - length:
        raise _bad(path, f"its tensors take {at} bytes, the file holds {size - 8 - length}")
    return tuple(tensors)


def shards(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a checkpoint, sorted, under transformers' names or diffusers'. Raises CatalogError that
    names the first missing one."""
    for stem in ("model", "diffusion_pytorch_model"):
        index = folder / f"{stem}.safetensors.index.json"
        if index.exists():
            return _listed(folder, index)
        single = folder / f"{stem}.safetensors"
        if single.exists():
            return (single,)
    return ()


def _listed(folder: Path, index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        outside = next((n for n in names if Path(n).name != n), None)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise _bad(index, "it holds no weight map") from None
    if outside is not None:
        raise _bad(index, f"`{outside}` is no file beside it")
    missing = next((n for n in names if not (folder / n).exists()), None)
    if missing is not None:
        raise CatalogError(f"{folder} lacks {missing}, which {index.name} lists", id="model-not-found")
    return tuple(folder / n for n in names)


def _bad(path: Path, why: str) -> CatalogError:
    return CatalogError(f"{path} is damaged: {why}", help="fetch the file again", id="bad-checkpoint")
