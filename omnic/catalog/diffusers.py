"""Checkpoints in diffusers' layout: `model_index.json`, and a folder a component. JSON and headers, never a weight."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from omnic.catalog.part import CatalogError, Model
from omnic.catalog.safetensors import DTYPE_BITS, Tensor, header, shards
from omnic.contract.files import File

FAMILIES = {
    # class of the pipeline in model_index.json: the family that knows it
    "CogVideoXPipeline": "cogvideox",
    "Flux2KleinPipeline": "flux2",
    "Flux2Pipeline": "flux2",
    "HunyuanVideo15Pipeline": "hunyuan_video15",
    "FluxPipeline": "flux",
    "LTX2Pipeline": "ltx2",
    "Lumina2Pipeline": "lumina2",
    "Lumina2Text2ImgPipeline": "lumina2",
    "QwenImagePipeline": "qwen_image",
    "QwenImageEditPipeline": "qwen_image_edit",
    "WanImageToVideoPipeline": "wan",
    "WanPipeline": "wan",
    "StableAudioPipeline": "stable_audio",
    "StableDiffusion3Pipeline": "sd3",
    "StableDiffusionXLPipeline": "sdxl",
    "ZImagePipeline": "z_image",
}
_FIXTURES = Path(__file__).parent / "fixtures"


@dataclass(frozen=True, slots=True)
class Component:
    """A component as `model_index.json` names it. `tensors` maps name patterns (`blocks.*.attn.to_q.weight`) to how
    many tensors they stand for and the shape of each."""

    name: str
    library: str  # diffusers, transformers, or the pipeline's own module
    kind: str  # the class's name
    config: Mapping[str, Any] = field(default_factory=dict)
    stored: str = "F32"  # the dtype that most elements are stored in
    tensors: Mapping[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    def elements(self, *prefixes: str, without: tuple[str, ...] = (), within: tuple[str, ...] = ()) -> int:
        """Elements of the tensors whose names begin with one of `prefixes` (any, if none are given) and with none of
        `without`; with `within`, of those that have one of these between the dots of their names."""
        return sum(
            count * prod(shape)
            for name, (count, shape) in self.tensors.items()
            if (not prefixes or name.startswith(prefixes))
            and not (without and name.startswith(without))
            and (not within or not set(within).isdisjoint(name.split(".")))
        )


@dataclass(frozen=True, slots=True)
class Index:
    """A pipeline of diffusers: its class, what `model_index.json` sets, and its components."""

    kind: str
    settings: Mapping[str, Any]
    components: Mapping[str, Component]
    where: str

    def __getitem__(self, name: str) -> Component:
        """Raises CatalogError for a component that is not there."""
        found = self.components.get(name)
        if found is None:
            raise CatalogError(f"{self.where} lacks `{name}`, which a {self.kind} has", id="bad-checkpoint")
        return found

    def __contains__(self, name: str) -> bool:
        return name in self.components


def from_folder(folder: Path, root: Path, where: str) -> Model:
    """The model of a directory with `model_index.json`. Raises CatalogError that names the part that is missing."""
    from omnic.catalog.checkpoints import read_json

    raw = read_json(folder / "model_index.json")
    components, paths = {}, [folder / "model_index.json"]
    for name, value in raw.items():
        if isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value):
            components[name], found = _component(folder / name, name, value[0], value[1], where)
            paths += found
    settings = {n: v for n, v in raw.items() if not n.startswith("_") and not isinstance(v, list)}
    files = tuple(File(p.relative_to(root).as_posix(), p.stat().st_size) for p in paths)
    model = _model(Index(str(raw.get("_class_name")), settings, components, where))
    return replace(model, files=files, root=str(root))


def _component(folder: Path, name: str, library: str, kind: str, where: str) -> tuple[Component, list[Path]]:
    from omnic.catalog.checkpoints import read_json

    if not folder.is_dir():
        raise CatalogError(f"{where} lacks the folder `{name}`", help="fetch it again", id="model-not-found")
    files = sorted(p for p in folder.iterdir() if p.suffix in (".json", ".txt", ".model", ".jinja"))
    broken = [p.name for p in folder.iterdir() if p.is_symlink() and not p.exists()]
    if broken:
        raise CatalogError(f"{where}/{name} lacks {broken[0]}: its link points nowhere", help="fetch it again",
                           id="model-not-found")  # fmt: skip
    names = ("config.json", "scheduler_config.json", "guider_config.json")
    config = next((read_json(folder / n) for n in names if (folder / n).exists()), {})
    weights = shards(folder)
    if not weights and (folder / "config.json").exists() and library != "scheduler":
        raise CatalogError(f"{where}/{name} has no weights in safetensors", id="model-not-found")
    tensors = [tensor for path in weights for tensor in header(path)]
    return Component(name, library, kind, config, _stored(tensors), patterns(tensors)), files + list(weights)


def from_fixture(fixture: Mapping[str, Any], where: str) -> Model:
    """The model of a published config that ships with omnic: it checks and plans without weights."""
    model = _model(_index(fixture, where))
    return replace(model, license=str(fixture["license"]))


def from_random(family: str, options: Mapping[str, Any]) -> Model:
    """Seeded random weights: of a tiny config, or `like` a repository whose config ships with omnic."""
    options = dict(options)
    seed, like = options.pop("seed", 0), options.pop("like", None)
    if options:
        raise CatalogError(f'`random("{family}")` has no option `{next(iter(options))}`',
                           help="it has seed, like", id="bad-model-option")  # fmt: skip
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        raise CatalogError(f"`seed` must be a whole number from 0, not {seed!r}", id="bad-model-option")
    file = _FIXTURES / (f"random--{family}.json" if like is None else f"{str(like).replace('/', '--')}.json")
    where = f'random("{family}")'
    fixture = json.loads(file.read_bytes()) if file.is_file() else {}
    if FAMILIES.get(str(fixture.get("pipeline"))) != family:
        raise CatalogError(f"omnic has no config of `{like}` for `{family}`", id="bad-model-option")
    model = _model(_index(fixture, where))
    return replace(model, format="random", config=model.config | {"seed": seed})


def _index(fixture: Mapping[str, Any], where: str) -> Index:
    components = {
        name: Component(
            name,
            held["class"][0],
            held["class"][1],
            held.get("config", {}),
            held.get("stored", "F32"),
            {pattern: (count, tuple(shape)) for pattern, (count, shape) in held.get("tensors", {}).items()},
        )
        for name, held in fixture["components"].items()
    }
    return Index(fixture["pipeline"], fixture.get("settings", {}), components, where)


def _model(index: Index) -> Model:
    family = FAMILIES.get(index.kind)
    if family is None:
        raise CatalogError(f"{index.where}: omnic does not know the pipeline `{index.kind}`",
                           help=f"it knows {', '.join(FAMILIES)}", id="unknown-family")  # fmt: skip
    module = importlib.import_module(f"omnic.catalog.{family}")
    try:
        parts = module.parts(index)
    except CatalogError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CatalogError(f"{index.where} does not describe a {index.kind}: {error!r}", id="bad-checkpoint") from None
    config = {
        "pipeline": index.kind,
        "settings": dict(index.settings),
        "components": {
            c.name: {"library": c.library, "class": c.kind, "config": dict(c.config)} for c in index.components.values()
        },
    }
    return Model(
        family,
        "safetensors",
        {part.name: part for part in parts},
        config,
        origin=index.where,
        digest=_digest(index.components.values()),
    )


def patterns(tensors: Iterable[Tensor]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """What a header declares, layers taken together: the numbers in names become `*`. Names of one pattern and of
    different shapes are told apart by their number."""
    found: dict[str, tuple[int, tuple[int, ...]]] = {}
    for tensor in tensors:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", tensor.name)
        if name in found and found[name][1] != tensor.shape:
            name = tensor.name
        count, _ = found.get(name, (0, tensor.shape))
        found[name] = (count + 1, tensor.shape)
    return found


def _stored(tensors: Iterable[Tensor]) -> str:
    by_dtype: dict[str, int] = {}
    for tensor in tensors:
        by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.elements * DTYPE_BITS[tensor.dtype]
    return max(by_dtype, key=lambda dtype: by_dtype[dtype], default="F32")


def _digest(components: Iterable[Component]) -> str:
    listed = {c.name: sorted((n, count, list(shape)) for n, (count, shape) in c.tensors.items()) for c in components}
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
