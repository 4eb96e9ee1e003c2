"""An engine held against the module it was made from."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from omnic.runtime.engines import gate
from omnic.runtime.engines.artefact import Proof
from omnic.runtime.engines.builder import Settings
from omnic.runtime.engines.calls import ranges
from omnic.runtime.engines.export import export
from omnic.runtime.engines.fake import Reference
from tests.runtime.engines.toys import Toy, call


def held(builder: Reference, folder: Path) -> Proof:
    module = Toy().eval()
    made = export(module, call(2), ranges([call(2)]), folder)
    session = builder.session(builder.build(made.file, {}, Settings()))
    return gate.held(session, made.outputs, module, call(2), "sm_89")


def test_an_engine_that_computes_the_same_is_proven(tmp_path: Path) -> None:
    proof = held(Reference(), tmp_path)
    assert proof.error < 1e-6
    assert (proof.bound, proof.device) == (1e-3, "sm_89")


def test_one_that_does_not_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(gate.Unfaithful, match=r"off by 0\.1 of the largest value, and may be by 0\.001"):
        held(Reference(spoils=True), tmp_path)


def test_distance_is_relative_to_the_largest_value() -> None:
    assert gate.distance([torch.tensor([1.0, 100.0])], [torch.tensor([2.0, 100.0])]) == pytest.approx(0.01)
    assert gate.distance([torch.zeros(0)], [torch.zeros(0)]) == 0


@pytest.mark.parametrize("found", [[torch.tensor([math.nan])], [torch.ones(2)], []])
def test_other_shapes_and_what_is_not_finite_are_infinitely_far(found: list[torch.Tensor]) -> None:
    assert gate.distance(found, [torch.ones(1)]) == math.inf
