"""GGUF checkpoints made into safetensors once, and kept in the cache: `directory`.

An entry of the cache is a directory of transformers' own layout (config.json, tokenizer, model.safetensors) and
`entry.json`, which says what it was made from. It is put in place whole; one that is cut short, or that was made
from something else, is made again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from omnic.runtime.lock import cache_directory, digest
from omnic.runtime.weights import Checkpoint, Damaged

_VERSION = 1  # of what `_convert` writes
_LIBRARIES = ("transformers", "gguf", "safetensors")


def directory(checkpoint: Checkpoint, dtype: str, loaded: Callable[[int, int], None]) -> Path:
    """Where the checkpoint's config.json, tokenizer and safetensors lie, converted to `dtype` where it is GGUF.

    Raises Damaged if a file cannot be read.
    """
    if checkpoint.model.format != "gguf":
        return checkpoint.directory
    files = checkpoint.files(".gguf")
    if len(files) != 1:
        raise Damaged(f"model `{checkpoint.model.name}` has {len(files)} GGUF files; omnic reads one")
    return converted(files[0], dtype, loaded)


def converted(gguf: Path, dtype: str, loaded: Callable[[int, int], None]) -> Path:
    """The cache entry of a GGUF file in `dtype`, made if it is not there. One process makes it, others wait."""
    origin = {
        "version": _VERSION,
        "sha256": digest(gguf, cache_directory() / "digests"),
        "dtype": dtype,
        "libraries": {name: metadata.version(name) for name in _LIBRARIES},
    }
    key = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:16]
    entry = cache_directory() / "checkpoints" / f"{gguf.stem}-{dtype}-{key}"
    if _whole(entry, origin):
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{entry.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _whole(entry, origin):
            _make(gguf, dtype, entry, origin, loaded)
    return entry


def _whole(entry: Path, origin: dict[str, Any]) -> bool:
    try:
        record = json.loads((entry / "entry.json").read_bytes())
        sizes = {name: (entry / name).stat().st_size for name in record["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return bool(record["origin"] == origin and record["files"] == sizes)


def _make(gguf: Path, dtype: str, entry: Path, origin: dict[str, Any], loaded: Callable[[int, int], None]) -> None:
    size = gguf.stat().st_size
    partial = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
    try:
        # in a process of its own: what it holds in memory and in library state goes away with it
        command = [sys.executable, "-m", "omnic.runtime.convert", str(gguf), dtype, str(partial), str(os.getpid())]
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=_environment()
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                loaded(int(size * float(line)), size)
            if child.wait():
                errors.seek(0)
                last = errors.read().strip().rpartition("\n")[2]
                raise Damaged(f"{gguf} cannot be converted: {last or f'exit status {child.returncode}'}")
        files = {path.name: path.stat().st_size for path in sorted(partial.iterdir())}
        (partial / "entry.json").write_text(json.dumps({"origin": origin, "files": files}, indent=2) + "\n")
        shutil.rmtree(entry, ignore_errors=True)
        partial.replace(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


# --- in the child process ---------------------------------------------------------------------------------------------


def _convert(gguf: Path, dtype: str, target: Path) -> None:
    """Writes what `gguf` holds into `target`. Prints how far it is, from 0 to 1, a line each time."""
    print(0.0, flush=True)
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from omnic.runtime.tensors import dtype_of

    print(0.1, flush=True)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(target)
    print(0.35, flush=True)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=dtype_of("float32"))
    print(0.9, flush=True)
    tensors = {name: tensor.to(dtype_of(dtype)).contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    del model.config.quantization_config  # the tensors are no longer quantised
    model.config.dtype = dtype
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(target)
    model.generation_config.save_pretrained(target)
    print(1.0, flush=True)


def _die_with_parent(parent: int) -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it died before that
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _die_with_parent(int(sys.argv[4]))
    _convert(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
