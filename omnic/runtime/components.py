"""Components of a checkpoint in diffusers' layout: modules, tokenizers, the scheduler's config."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from omnic.runtime.home import Home
from omnic.runtime.modules import filled
from omnic.runtime.stepcache import Cacheable, cacheable
from omnic.runtime.tensors import Loaded, Seeded, Shards, Source
from omnic.runtime.text import made_up
from omnic.runtime.weights import Checkpoint, Damaged


class Renamed:
    """A source whose tensors have one of `prefixes` before the name asked for, or in place of its beginning where
    `beginning` is given."""

    def __init__(self, source: Source, prefixes: tuple[str, ...], beginning: str = "") -> None:
        self._source, self._prefixes, self._beginning = source, prefixes, beginning

    def __contains__(self, name: object) -> bool:
        return any(found in self._source for found in self._names(str(name)))

    def read(self, name: str, into: Tensor) -> None:
        self._source.read(next((n for n in self._names(name) if n in self._source), name), into)

    def _names(self, name: str) -> list[str]:
        if self._beginning and not name.startswith(self._beginning):
            return [name, *(f"{prefix}{name}" for prefix in self._prefixes)]
        return [prefix + name.removeprefix(self._beginning) for prefix in self._prefixes]


class Components:
    """What a diffusers checkpoint consists of, each loaded when asked for. `loaded` counts the bytes of all that one
    stage asks for together."""

    def __init__(self, checkpoint: Checkpoint, home: Home, loaded: Loaded) -> None:
        self._checkpoint, self.home, self.dtype = checkpoint, home, home.torch_dtype
        self._loaded, self._before = loaded, 0
        self.settings: Mapping[str, Any] = checkpoint.model.config["settings"]

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.model.config["components"]

    def config(self, name: str) -> Mapping[str, Any]:
        """What the component's own config.json says."""
        config: Mapping[str, Any] = self._entry(name)["config"]
        return config

    def module(
        self,
        name: str,
        *,
        prefixes: tuple[str, ...] = ("",),
        beginning: str = "",
        skip: tuple[str, ...] = (),
        kind: str | None = None,
        config: Mapping[str, Any] | None = None,
        dtype: str | None = None,
        eight: Callable[[str], bool] | None = None,
    ) -> nn.Module:
        """The component as a module of its library, without the parts whose names begin with one of `skip`.

        `kind` and `config` name a part of it instead, whose tensors have one of `prefixes`, in place of `beginning`
        where their names begin so. `eight` as in `modules.filled`. Raises Missing or Damaged.
        """
        entry = self._entry(name)
        build = partial(built, entry["library"], kind or entry["class"], dict(config or entry["config"]))
        source: Source = Renamed(self._source(name), prefixes, beginning)
        home = replace(self.home, dtype=dtype or self.home.dtype)
        return filled(build, source, home, self._progress(), skip=skip, eight=eight)

    def tokenizer(self, name: str, words: int) -> Any:
        """The tokenizer; random weights get one made up for a vocabulary of `words`. Raises Damaged."""
        if self._checkpoint.root is None:
            return made_up(words)
        from transformers import AutoTokenizer

        folder = self._folder(name)
        try:
            return AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Damaged(f"{folder} has no tokenizer that transformers can load: {error}") from None

    def image_processor(self, name: str, kind: str) -> Any:
        """What makes pictures ready for a vision encoder: of class `kind` of transformers, by the component's
        preprocessor_config.json; random weights get the class's defaults. Raises Damaged."""
        import transformers

        made: Any = getattr(transformers, kind)
        if self._checkpoint.root is None:
            return made()
        folder = self._folder(name)
        try:
            return made.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Damaged(f"{folder} has no image processor that transformers can load: {error}") from None

    def _entry(self, name: str) -> Mapping[str, Any]:
        entry: Mapping[str, Any] = self._checkpoint.model.config["components"][name]
        return entry

    def _source(self, name: str) -> Source:
        if self._checkpoint.root is None:
            return Renamed(Seeded(int(self._checkpoint.model.config["seed"])), (f"{name}.",))
        folder = self._folder(name)
        return Shards([p for p in self._checkpoint.files(".safetensors") if p.parent == folder])

    def _folder(self, name: str) -> Path:
        """Beside model_index.json."""
        (index,) = [p for p in self._checkpoint.files("model_index.json") if p.name == "model_index.json"]
        return index.parent / name

    def _progress(self) -> Loaded:
        before = self._before

        def loaded(done: int, total: int) -> None:
            self._before = before + done
            self._loaded(before + done, before + total)

        return loaded


def built(library: str, kind: str, config: dict[str, Any]) -> nn.Module:
    """A module of `library`, from its config. Raises Damaged for a class that the installed library lacks."""
    if library == "transformers":
        import transformers

        named: Any = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
        made: nn.Module = getattr(transformers, kind)(named)
        return made
    try:
        owner = importlib.import_module("diffusers" if library == "diffusers" else f"diffusers.pipelines.{library}")
        module: nn.Module = getattr(owner, kind).from_config(config)
    except (ImportError, AttributeError):
        raise Damaged(f"diffusers has no `{kind}` in `{library}`: it may need a later version") from None
    return module


class OneTransformer:
    """What step caches and adapters ask of a denoiser whose one module is `_transformer`, of diffusers."""

    _transformer: nn.Module

    def modules(self) -> Mapping[str, nn.Module]:
        return {"transformer": self._transformer}

    def blocks(self) -> Sequence[Cacheable]:
        return (cacheable(self._transformer),)
