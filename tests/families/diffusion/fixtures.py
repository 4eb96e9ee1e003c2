"""The configs of diffusion models that ship with omnic, and where their numbers come from.

`python -m tests.families.diffusion.fixtures [NAME…]` writes them to `omnic/catalog/fixtures/`: each module beside this
one named `configs_*` has `FIXTURES`, by file name. Configs are the library classes' defaults with what differs written
out; tensors are read off modules built on the meta device.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import tests.families.diffusion as here
from omnic.catalog.diffusers import patterns
from omnic.catalog.safetensors import Tensor
from omnic.runtime.components import built
from omnic.runtime.modules import build_empty

FOLDER = Path(__file__).parents[3] / "omnic" / "catalog" / "fixtures"
_NOISE = {
    "_diffusers_version", "transformers_version", "_name_or_path", "architectures", "chunk_size_feed_forward", "dtype",
    "id2label", "label2id", "is_encoder_decoder", "output_attentions", "output_hidden_states", "problem_type",
    "return_dict", "_class_name",
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    """A component: its class, and what of its config differs from the class's defaults. `tensors` is false for one
    without weights."""

    library: str
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    stored: str = "F32"
    tensors: bool = True


@dataclass(frozen=True)
class Fixture:
    pipeline: str
    components: dict[str, Held]
    license: str = "Apache-2.0"
    source: str = "made up: tiny"
    settings: dict[str, Any] = field(default_factory=dict)


def all_fixtures() -> dict[str, Fixture]:
    found: dict[str, Fixture] = {}
    for module in pkgutil.iter_modules(here.__path__):
        if module.name.startswith("configs_"):
            found |= importlib.import_module(f"{here.__name__}.{module.name}").FIXTURES
    return found


def written(fixture: Fixture) -> str:
    components = {name: _component(held) for name, held in fixture.components.items()}
    content = {
        "pipeline": fixture.pipeline,
        "license": fixture.license,
        "source": fixture.source,
        "settings": fixture.settings,
        "components": components,
    }
    text = json.dumps(content, indent=1, sort_keys=True)
    return re.sub(r"\[\s*([-\d.,\s\[\]]+?)\s*\](?=[,\n])", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text) + "\n"


def _component(held: Held) -> dict[str, Any]:
    entry: dict[str, Any] = {"class": [held.library, held.kind]}
    if not held.tensors:
        return entry | ({"config": held.config} if held.config else {})  # schedulers and tokenizers
    module = build_empty(lambda: built(held.library, held.kind, dict(held.config)))
    config = _told(json.loads(_json(module)))
    tensors = [Tensor(n, held.stored, tuple(t.shape)) for n, t in _saved(module)]
    return entry | {"config": config, "stored": held.stored, "tensors": patterns(tensors)}


def _told(config: Any) -> Any:
    """Without what says nothing of the model."""
    if not isinstance(config, dict):
        return config
    return {key: _told(value) for key, value in config.items() if key not in _NOISE}


def _json(module: Any) -> str:
    config = module.config
    if hasattr(config, "to_json_string"):
        return str(config.to_json_string(use_diff=False))
    return str(module.to_json_string())


def _saved(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """What `save_pretrained` writes, under the names it writes."""
    tied = getattr(module, "_tied_weights_keys", None) or {}
    state = {name: t for name, t in module.state_dict().items() if name not in tied}
    if hasattr(module, "_checkpoint_conversion_mapping") or hasattr(module.config, "model_type"):
        from transformers.core_model_loading import revert_weight_conversion

        state = revert_weight_conversion(module, state)
    yield from state.items()


def main() -> None:
    wanted = sys.argv[1:]
    for name, fixture in all_fixtures().items():
        if not wanted or any(w in name for w in wanted):
            (FOLDER / f"{name}.json").write_text(written(fixture))
            print(name)


if __name__ == "__main__":
    main()
