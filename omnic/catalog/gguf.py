"""Headers of GGUF files, walked as bytes: metadata and tensor shapes without a weight (and without a package)."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnic.catalog.part import CatalogError
from omnic.catalog.safetensors import Tensor

BLOCKS: dict[int, tuple[str, int, int]] = {
    # id: (name, elements a block, bytes a block)
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}  # fmt: skip

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONG = 64  # longer arrays (vocabularies, merges) are walked over, not kept


@dataclass(frozen=True, slots=True)
class Skipped:
    """Stands for an array that was walked over: how many elements it has."""

    length: int


@dataclass(frozen=True, slots=True)
class Header:
    """Metadata by key, and the tensors in file order (shapes rows first, as torch has them)."""

    metadata: dict[str, Any]
    tensors: tuple[Tensor, ...]


def header(path: Path) -> Header:
    """The header of a GGUF file, version 2 or 3. Raises CatalogError (`bad-checkpoint`) if it is damaged."""
    with path.open("rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise _bad(path, "it is empty") from None
        with data:
            try:
                return _read(path, data)
            except (struct.error, UnicodeDecodeError, MemoryError, OverflowError):
                raise _bad(path, "its header ends early or is not one") from None


def _read(path: Path, data: mmap.mmap) -> Header:
    magic, version = data[:4], int.from_bytes(data[4:8], "little")
    if magic != b"GGUF":
        raise _bad(path, "it does not begin with GGUF")
    if version not in (2, 3):
        raise CatalogError(f"{path} is GGUF version {version}; omnic reads 2 and 3", id="not-supported-yet")
    tensor_count, key_count = struct.unpack_from("<QQ", data, 8)
    at, metadata = 24, {}
    for _ in range(key_count):
        key, at = _string(data, at)
        kind = int.from_bytes(data[at : at + 4], "little")
        metadata[key], at = _value(path, data, at + 4, kind)
    tensors, ends = [], 0
    for _ in range(tensor_count):
        name, at = _string(data, at)
        (rank,) = struct.unpack_from("<I", data, at)
        if rank > 4:
            raise _bad(path, f"tensor `{name}` has {rank} dimensions")
        *dims, kind, offset = struct.unpack_from(f"<{rank}QIQ", data, at + 4)
        at += 4 + 8 * rank + 12
        if kind not in BLOCKS:
            raise CatalogError(f"{path}: omnic does not know type {kind} of tensor `{name}`", id="not-supported-yet")
        dtype, block, block_bytes = BLOCKS[kind]
        tensor = Tensor(name, dtype, tuple(reversed(dims)))
        if dims and dims[0] % block:
            raise _bad(path, f"rows of `{name}` are {dims[0]} long, {dtype} packs {block} together")
        ends = max(ends, offset + tensor.elements // block * block_bytes)
        tensors.append(tensor)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise _bad(path, f"its tensors are aligned to {alignment}")
    start = -(-at // alignment) * alignment
    if start + ends > len(data):
        raise _bad(path, f"its tensors end at byte {start + ends}, the file at {len(data)}")
    return Header(metadata, tuple(tensors))


def _string(data: mmap.mmap, at: int) -> tuple[str, int]:
    end = at + 8 + int.from_bytes(data[at : at + 8], "little")
    if end > len(data):
        raise struct.error
    return data[at + 8 : end].decode(), end


def _value(path: Path, data: mmap.mmap, at: int, kind: int) -> tuple[Any, int]:
    if kind in _SCALARS:
        code = "<" + _SCALARS[kind]
        return struct.unpack_from(code, data, at)[0], at + struct.calcsize(code)
    if kind == _STRING:
        return _string(data, at)
    if kind != _ARRAY:
        raise _bad(path, f"its metadata has a value of type {kind}")
    inner, length = struct.unpack_from("<IQ", data, at)
    at += 12
    if inner in _SCALARS:
        code = f"<{length}{_SCALARS[inner]}"
        end = at + struct.calcsize(code)
        if end > len(data):
            raise struct.error
        return (Skipped(length) if length > _LONG else struct.unpack_from(code, data, at)), end
    if length > _LONG and inner == _STRING:
        return Skipped(length), _skip_strings(data, at, length)
    items = []
    for _ in range(length):
        item, at = _value(path, data, at, inner)
        items.append(item)
    return tuple(items), at


def _skip_strings(data: mmap.mmap, at: int, count: int) -> int:
    read = struct.Struct("<Q").unpack_from  # raises struct.error past the end
    for _ in range(count):
        (length,) = read(data, at)
        at += 8 + length
    return at


def _bad(path: Path, why: str) -> CatalogError:
    return CatalogError(f"{path} is damaged: {why}", help="fetch the file again", id="bad-checkpoint")
