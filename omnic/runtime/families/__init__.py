"""How the parts of each family of models are loaded and run, one module a family."""

from __future__ import annotations

import importlib
from types import ModuleType

_MODULES = {
    # families that share a module
    "qwen2": "llama",
    "qwen3": "llama",
    "transformers": "transformers_lm",
}


def load(family: str) -> ModuleType:
    """The module that loads `family`. One of a generate family has `load(checkpoint, dtype, loaded)`, which gives
    a `language.LanguageModel`; one of a decode family has `load(checkpoint, threads)`."""
    return importlib.import_module(f"{__name__}.{_MODULES.get(family, family)}")
