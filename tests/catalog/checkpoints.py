"""Checkpoints made by hand: headers as they are, data as holes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from omnic.catalog.llama import tensors_of
from omnic.catalog.llama_config import config_of

TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
    "max_position_embeddings": 512,
}  # fmt: skip
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I8": 1, "F8_E4M3": 1}


def shapes(config: Mapping[str, Any] = TINY) -> dict[str, tuple[int, ...]]:
    return tensors_of(config_of(config["model_type"], config, "tiny"))


def write_safetensors(path: Path, tensors: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> None:
    """A whole file; its data is a hole of the right size."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors.items():
        end = at + prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any] = TINY,
    *,
    shards: int = 1,
    dtype: str = "BF16",
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """A directory in the hub's layout; its tensors are those of the config if none are given."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    tensors = shapes(config) if tensors is None else tensors
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    names = list(tensors)
    parts = [names[i::shards] for i in range(shards)]
    files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    for file, part in zip(files, parts, strict=True):
        write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)
    index = {"weight_map": {name: file for file, part in zip(files, parts, strict=True) for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def gguf(
    metadata: Iterable[tuple[str, Any]], tensors: Mapping[str, tuple[tuple[int, ...], int]], version: int = 3
) -> bytes:
    """A GGUF header. `tensors`: name to shape (rows first) and type id; each takes its bytes in turn."""
    metadata = list(metadata)
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata:
        out += _string(key) + _value(value)
    at = 0
    for name, (shape, kind) in tensors.items():
        out += _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
        out += struct.pack("<IQ", kind, at)
        at += (_gguf_bytes(shape, kind) + 31) // 32 * 32
    out += b"\0" * (-len(out) % 32)
    return out + b"\0" * at


def _gguf_bytes(shape: tuple[int, ...], kind: int) -> int:
    block, size = {0: (1, 4), 1: (1, 2), 3: (32, 20), 8: (32, 34)}[kind]
    return prod(shape) // block * size


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        case list():
            return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    raise TypeError(value)


LLAMA_METADATA: list[tuple[str, Any]] = [
    ("general.architecture", "llama"), ("general.license", "mit"), ("llama.block_count", 1),
    ("llama.context_length", 512), ("llama.embedding_length", 64), ("llama.feed_forward_length", 96),
    ("llama.attention.head_count", 4), ("llama.attention.head_count_kv", 2), ("llama.rope.freq_base", 50000.0),
    ("llama.attention.layer_norm_rms_epsilon", 1e-5), ("tokenizer.ggml.tokens", [f"t{i}" for i in range(320)]),
    ("tokenizer.ggml.token_type", [1] * 320), ("tokenizer.ggml.eos_token_id", 2), ("tokenizer.ggml.bos_token_id", 1),
]  # fmt: skip
LLAMA_TENSORS: dict[str, tuple[tuple[int, ...], int]] = {
    "token_embd.weight": ((320, 64), 8), "output_norm.weight": ((64,), 0), "blk.0.attn_norm.weight": ((64,), 0),
    "blk.0.attn_q.weight": ((64, 64), 3), "blk.0.attn_k.weight": ((32, 64), 3), "blk.0.attn_v.weight": ((32, 64), 3),
    "blk.0.attn_output.weight": ((64, 64), 3), "blk.0.ffn_norm.weight": ((64,), 0),
    "blk.0.ffn_gate.weight": ((96, 64), 3), "blk.0.ffn_up.weight": ((96, 64), 3),
    "blk.0.ffn_down.weight": ((64, 96), 3),
}  # fmt: skip
