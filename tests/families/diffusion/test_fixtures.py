"""The configs that ship are what their sources say, and their tensors are those of the library's modules."""

import pytest

from tests.families.diffusion.fixtures import FOLDER, all_fixtures, written

FIXTURES = all_fixtures()


@pytest.mark.parametrize("name", FIXTURES)
def test_what_ships_is_what_would_be_written(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text() == written(FIXTURES[name])
