"""TensorRT for RTX, which builds for GPUs that are not there, and what is told where it cannot."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from omnic.runtime.engines import tensorrt
from omnic.runtime.engines.builder import Builder, NoBuilder, NoRunner, Settings, builder_for
from omnic.runtime.engines.calls import Shapes, Unfit, ranges
from omnic.runtime.engines.export import Exported, export
from tests.runtime.engines.toys import Toy, call

ADA = "sm_89"


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "architecture_here", lambda: None)


@pytest.fixture
def builder() -> Builder:
    if find_spec("tensorrt_rtx_bindings") is None:
        pytest.skip("needs omnic[tensorrt]")
    return builder_for(ADA)


@pytest.fixture
def toy(tmp_path: Path) -> Exported:
    return export(Toy().eval(), call(2), ranges([call(2), call(9)]), tmp_path)


def shapes(toy: Exported) -> dict[str, Shapes]:
    return {toy.inputs[0]: Shapes((2, 8), (2, 8), (9, 8))}


def test_an_engine_is_built_for_a_gpu_that_is_not_there(builder: Builder, toy: Exported) -> None:
    assert (builder.name, builder.architecture, builder.refits) == ("tensorrt-rtx", ADA, False)
    one = builder.build(toy.file, shapes(toy), Settings())
    other = builder_for("sm_120").build(toy.file, shapes(toy), Settings())
    assert len(one) > 1000
    assert one != other


def test_it_does_not_run_there(builder: Builder, toy: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = builder.build(toy.file, shapes(toy), Settings())
    with pytest.raises(NoRunner, match="runs on an NVIDIA GPU, and torch finds none here"):
        builder.session(engine)
    monkeypatch.setattr(tensorrt, "architecture_here", lambda: "sm_90")
    with pytest.raises(NoRunner, match="TensorRT for RTX does not run on sm_90: install TensorRT"):
        builder.session(engine)


def test_a_file_that_is_no_graph_is_one_line(builder: Builder, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(Unfit, match="does not take it: ") as refused:
        builder.build(tmp_path / "model.onnx", {}, Settings())
    assert "\n" not in str(refused.value)


def test_what_it_builds_for_is_listed_where_it_builds_for_something_else(builder: Builder) -> None:
    with pytest.raises(NoBuilder, match=r"builds for .*sm_89.*, not for sm_90: it needs TensorRT, `pip install"):
        builder_for("sm_90")


def test_without_either_both_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "_full", lambda: None)
    monkeypatch.setattr(tensorrt, "_rtx", lambda: None)
    with pytest.raises(NoBuilder, match=r"no TensorRT is installed, which sm_89 needs: .* for RTX ones$"):
        builder_for(ADA)


def test_tensorrt_builds_where_its_gpu_is(monkeypatch: pytest.MonkeyPatch) -> None:
    full = tensorrt.TensorRT("tensorrt", "11.0", "sm_90", None)
    monkeypatch.setattr(tensorrt, "_full", lambda: full)
    monkeypatch.setattr(tensorrt, "architecture_here", lambda: "sm_90")
    assert builder_for("sm_90") is full
    assert full.refits
    monkeypatch.setattr(tensorrt, "_rtx", lambda: None)
    with pytest.raises(NoBuilder, match="TensorRT builds for sm_80 on such a GPU alone, and this machine has one of"):
        builder_for("sm_80")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_on_a_gpu_it_gives_what_the_module_gives_also_in_a_captured_graph(
    toy: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    here = tensorrt.architecture_here()
    assert here is not None
    try:
        session = builder_for(here).session(builder_for(here).build(toy.file, shapes(toy), Settings()))
    except (NoBuilder, NoRunner) as error:
        pytest.skip(str(error))
    module, x = Toy().eval().cuda(), call(5).tensors[0].cuda()
    name, out = toy.inputs[0], toy.outputs[0]
    torch.testing.assert_close(session.run({name: x})[out], module(x)["rows"], atol=1e-5, rtol=1e-5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = session.run({name: x})[out]
    x.neg_()
    graph.replay()
    torch.testing.assert_close(made, module(x)["rows"], atol=1e-5, rtol=1e-5)
    with pytest.raises(Unfit, match="outside of what the engine was built for"):
        session.run({name: torch.zeros(10, 8, device="cuda")})
