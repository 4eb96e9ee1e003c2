"""Engines in the place of a stage's modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.diffusion import Ask
from omnic.runtime.engines import artefact, gate
from omnic.runtime.engines.ahead import Ahead, Record
from omnic.runtime.engines.artefact import Foreign
from omnic.runtime.engines.builder import NoRunner, Settings
from omnic.runtime.engines.calls import Unfit
from omnic.runtime.engines.fake import Reference
from omnic.runtime.engines.make import engines, taken
from tests.runtime.engines.toys import Toy


class Stage:
    """A transform of one module: rows of the length asked for."""

    def __init__(self, seed: int = 0) -> None:
        self.toy = Toy(seed).eval().requires_grad_(False)

    def bodies(self) -> Mapping[str, nn.Module]:
        return {"toy": self.toy}

    def run(self, ask: Ask) -> Mapping[str, Any]:
        x = torch.linspace(-1, 1, ask.settings["rows"] * 8).reshape(-1, 8)
        found: dict[str, Tensor] = self.toy(x, scale=ask.settings.get("scale", 1.0))
        return found


def asks(*rows: int, **more: Any) -> list[Ask]:
    return [Ask(0, {}, {"rows": n, **more}) for n in rows]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))


def built(builder: Reference, folder: Path, *every: Ask) -> list[Record]:
    """The engines of a stage in the folder of a build."""
    made = engines("toys.rows", Stage(), every, 1, builder, Settings())
    return [Record("rows", one.body, one.signature, taken(one.obtained.artefact, folder).path.name) for one in made]


def installed(builder: Reference, folder: Path, records: list[Record], stage: Stage | None = None) -> Stage:
    stage = stage or Stage()
    Ahead(folder, records, builder).install(stage)
    return stage


def test_a_stage_gives_the_same_and_holds_no_weights(tmp_path: Path) -> None:
    builder = Reference()
    stage = installed(builder, tmp_path, built(builder, tmp_path, *asks(2, 9)))
    for rows in (2, 5, 9):
        (ask,) = asks(rows)
        found, expected = stage.run(ask), Stage().run(ask)
        assert found["word"] == "kept"
        for name in ("rows", "mean"):
            torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=0)
    assert [parameter.numel() for parameter in stage.toy.parameters()] == [0, 0]


def test_a_call_outside_of_what_was_built_is_told(tmp_path: Path) -> None:
    builder = Reference()
    stage = installed(builder, tmp_path, built(builder, tmp_path, *asks(2, 9)))
    with pytest.raises(Unfit, match=r"`arg0` of `toy` is \[10, 8\], and its engine was built for \[2\.\.9, 8\]"):
        stage.run(*asks(10))
    with pytest.raises(Unfit, match="in a way that no engine was made for"):
        stage.run(*asks(2, scale=2.0))


def test_each_way_of_calling_has_an_engine(tmp_path: Path) -> None:
    builder = Reference()
    records = built(builder, tmp_path, *asks(2, 9), *asks(2, 9, scale=2.0))
    stage = installed(builder, tmp_path, records)
    assert len(records) == len(builder.built) == 2
    for scale in (1.0, 2.0):
        (ask,) = asks(5, scale=scale)
        torch.testing.assert_close(stage.run(ask)["rows"], Stage().run(ask)["rows"], atol=1e-6, rtol=0)


def test_an_engine_that_ran_where_it_was_built_is_proven(tmp_path: Path) -> None:
    (record,) = built(Reference(), tmp_path, *asks(2, 9))
    proof = artefact.read(tmp_path / record.entry).proof
    assert proof is not None
    assert proof.error < 1e-6


def test_one_that_did_not_is_proven_on_the_first_request(tmp_path: Path) -> None:
    (record,) = built(Reference(runs=False), tmp_path, *asks(2, 9))
    assert artefact.read(tmp_path / record.entry).proof is None
    stage = installed(Reference(), tmp_path, [record])
    assert stage.toy.inner.weight.numel() == 64
    stage.run(*asks(5))
    proof = artefact.read(tmp_path / record.entry).proof
    assert proof is not None
    assert proof.device == "sm_89"
    assert stage.toy.inner.weight.numel() == 0


def test_an_engine_that_computes_something_else_is_refused_when_built(tmp_path: Path) -> None:
    for _ in range(2):  # and not kept
        with pytest.raises(gate.Unfaithful, match=r"`toy`: the engine is off by 0\.1"):
            built(Reference(spoils=True), tmp_path, *asks(2, 9))
    assert len(built(Reference(), tmp_path, *asks(2, 9))) == 1


def test_an_unproven_one_that_computes_something_else_is_refused_at_each_request(tmp_path: Path) -> None:
    records = built(Reference(runs=False, spoils=True), tmp_path, *asks(2, 9))
    stage = installed(Reference(), tmp_path, records)
    for _ in range(2):
        with pytest.raises(gate.Unfaithful):
            stage.run(*asks(5))


def test_engines_of_another_gpu_or_of_none_are_one_line(tmp_path: Path) -> None:
    records = built(Reference(), tmp_path, *asks(2, 9))
    with pytest.raises(Foreign, match="is an engine for architecture sm_89, and here it is sm_120: build again"):
        installed(Reference(architecture="sm_120"), tmp_path, records)
    with pytest.raises(NoRunner, match="runs where a test lets it"):
        installed(Reference(runs=False), tmp_path, records)
    with pytest.raises(Foreign, match="has an engine for `other`, which this stage does not have"):
        installed(Reference(), tmp_path, [replace(records[0], body="other")])
    with pytest.raises(Foreign, match="holds no engine for this stage"):
        installed(Reference(), tmp_path, [])


def test_a_truncated_engine_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    builder = Reference()
    (record,) = built(builder, tmp_path, *asks(2, 9))
    loaded = builder.loaded
    file = tmp_path / record.entry / artefact.BLOB
    whole = file.stat().st_size
    file.unlink()  # it may be the very file of the cache
    file.write_bytes(b"cut")
    with pytest.raises(Foreign, match=f"has 3 bytes, and should have {whole}"):
        installed(builder, tmp_path, [record])
    assert builder.loaded == loaded


class Idle(Stage):
    """A stage that reaches its module for small requests alone."""

    def run(self, ask: Ask) -> Mapping[str, Any]:
        return super().run(ask) if ask.settings["rows"] < 5 else {}


def test_a_request_that_goes_around_the_module_is_told_when_engines_are_made() -> None:
    with pytest.raises(Unfit, match="a request with rows = 9 does not run `toy` as a whole"):
        engines("toys.rows", Idle(), asks(2, 9), 1, Reference(), Settings())
