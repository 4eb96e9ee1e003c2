"""Checkpoints in a directory or a GGUF file: which family they are of, and the files they consist of."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from omnic.catalog import later
from omnic.catalog.part import CatalogError, Model
from omnic.contract.files import File

_SIDE_FILES = (
    "config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
    "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json",
)  # fmt: skip
_OTHERS = {"bert": "bert", "emoji_dit": "emoji_dit"}  # model type: the module that knows it
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))


def from_file(file: Path, root: Path, where: str) -> Model:
    """The model of a GGUF file, or the adapter of a safetensors file. `root` is the directory its name is given
    from."""
    from omnic.catalog import gguf, llama_gguf, lora

    if file.suffix == ".safetensors":
        return lora.from_file(file, root, where)

    header = gguf.header(file)
    kind = str(header.metadata.get("general.architecture"))
    if (refusal := later.model_type(kind, where)) is not None:
        raise refusal
    found = llama_gguf.from_gguf(header, where)
    files = (File(file.relative_to(root).as_posix(), file.stat().st_size),)
    return replace(found, files=files, root=str(root), license=str(header.metadata.get("general.license", "unknown")))


def from_folder(folder: Path, root: Path, where: str) -> Model:
    """The model of a directory in the hub's layout, or of the one GGUF file or adapter in it."""
    from omnic.catalog import kin, llama, lora, safetensors

    if (folder / "model_index.json").exists():
        from omnic.catalog import diffusers

        return diffusers.from_folder(folder, root, where)
    if (adapter := lora.in_folder(folder)) is not None:
        return lora.from_file(adapter, root, where)
    if not (folder / "config.json").exists():
        found = sorted(folder.glob("*.gguf"))
        if len(found) == 1:
            return from_file(found[0], root, where)
        holds = f"{len(found)} GGUF files: name one of them" if found else "neither config.json nor a GGUF file"
        raise CatalogError(f"{where} holds {holds}", id="model-not-found")
    config = read_json(folder / "config.json")
    if (module := _OTHERS.get(str(config.get("model_type")))) is not None:
        return _other(module, config, folder, root, where)
    kind = model_type(config, where)
    paths = safetensors.shards(folder)
    _complete(folder, where, bool(paths))
    tensors = [tensor for path in paths for tensor in safetensors.header(path)]
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").exists() else {}
    described = kin.from_checkpoint if kind in kin.KIN else llama.from_checkpoint
    found_model = described(
        kind, config, tensors, generation, f"{where}/config.json", f"{where}/generation_config.json"
    )
    names = [folder / name for name in _SIDE_FILES if (folder / name).exists()] + list(paths)
    files = tuple(File(p.relative_to(root).as_posix(), p.stat().st_size) for p in names)
    return replace(found_model, files=files, root=str(root))


def _other(module: str, config: dict[str, Any], folder: Path, root: Path, where: str) -> Model:
    """The model of a directory whose family is no language model."""
    from omnic.catalog import safetensors

    paths = safetensors.shards(folder)
    if not paths:
        raise CatalogError(f"{where} lacks model.safetensors", id="model-not-found")
    tensors = [tensor for path in paths for tensor in safetensors.header(path)]
    family = importlib.import_module(f"omnic.catalog.{module}")
    try:
        found: Model = family.from_checkpoint(config, tensors, where)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, CatalogError):
            raise
        raise CatalogError(
            f"{where}/config.json does not describe a `{module}`: {error}", id="bad-checkpoint"
        ) from None
    names = [folder / name for name in (*_SIDE_FILES, "vocab.txt") if (folder / name).exists()] + list(paths)
    files = tuple(File(p.relative_to(root).as_posix(), p.stat().st_size) for p in names)
    return replace(found, files=files, root=str(root))


def model_type(config: dict[str, Any], where: str) -> str:
    """The model type of a config.json that omnic runs as a language model: one of `llama` or of `kin`. Raises
    CatalogError for any other."""
    from omnic.catalog.kin import KIN
    from omnic.catalog.llama_config import ARCHITECTURES

    types = ARCHITECTURES | {one.architecture: kind for kind, one in KIN.items()}
    stated, listed = config.get("model_type"), config.get("architectures")
    if not isinstance(stated, str | None):
        raise CatalogError(f"{where}/config.json: `model_type` is {stated!r}, not a name", id="bad-checkpoint")
    if listed is not None and not (isinstance(listed, list) and all(isinstance(a, str) for a in listed)):
        message = f"{where}/config.json: `architectures` is {listed!r}, not a list of names"
        raise CatalogError(message, id="bad-checkpoint")
    architectures: list[str] = listed or []
    kind = stated or next((types.get(a) for a in architectures), None)
    if (refusal := later.model_type(str(kind), where)) is not None:
        raise refusal
    wrong = [a for a in architectures if a not in types]
    if kind is None or kind not in types.values() or wrong:
        found = f"architecture `{wrong[0]}`" if wrong else f"model type `{kind}`"
        known = ", ".join(types)
        raise CatalogError(f"{where}: omnic does not know {found}", help=f"it knows {known}", id="unknown-family")
    return kind


def _complete(folder: Path, where: str, weights: bool) -> None:
    """Raises CatalogError that names the first part of the checkpoint that is not there."""
    broken = sorted(p.name for p in folder.iterdir() if p.is_symlink() and not p.exists())
    if broken:
        raise CatalogError(f"{where} lacks {broken[0]}: its link points nowhere", help="fetch it again",
                           id="model-not-found")  # fmt: skip
    if not weights:
        raise CatalogError(f"{where} lacks model.safetensors", id="model-not-found")
    if not any(all((folder / name).exists() for name in names) for names in _TOKENIZERS):
        raise CatalogError(f"{where} lacks tokenizer.json", id="model-not-found")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises CatalogError (`bad-checkpoint`) if the file holds none."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise CatalogError(f"{path} is not JSON: {error}", id="bad-checkpoint") from None
    if not isinstance(value, dict):
        raise CatalogError(f"{path} does not hold a JSON object", id="bad-checkpoint")
    return value
