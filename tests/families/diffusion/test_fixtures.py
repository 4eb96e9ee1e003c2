"""The configs that ship are what their sources say, and their tensors are those of the library's modules."""

from pathlib import Path

import pytest

from omnic import catalog, runtime
from omnic.catalog.diffusers import FAMILIES
from tests.families.diffusion.fixtures import FOLDER, all_fixtures, written

FIXTURES = all_fixtures()


@pytest.mark.parametrize("name", FIXTURES)
def test_what_ships_is_what_would_be_written(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == written(FIXTURES[name])


@pytest.mark.parametrize("family", sorted(set(FAMILIES.values())))
def test_a_family_is_two_files_of_under_200_lines(family: str) -> None:
    for package in (Path(catalog.__path__[0]), Path(runtime.__path__[0]) / "families"):
        assert len((package / f"{family}.py").read_text().splitlines()) < 200
