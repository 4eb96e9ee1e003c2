"""Modules to ONNX, by torch's exporter: `export`. The same module gives the same bytes."""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from omnic.runtime.engines.calls import Call, Shapes, Unfit, taken_apart

OPSET = 20
_WEIGHTS = "model.weights"  # beside model.onnx: a message of protobuf ends at 2 GiB


@dataclass(frozen=True, slots=True)
class Exported:
    """A module as ONNX on disk. `graph` is the sha256 of all of it but the numbers of its weights, `weights` that of
    those. `nesting` is how what the module gives nests (`calls.put_together`)."""

    file: Path
    graph: str
    weights: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nesting: str


class _Flat(nn.Module):
    """A module as a function of the tensors of a call alone. `told` is called with how its result nests: what tracing
    leaves in a module is undone."""

    def __init__(self, module: nn.Module, call: Call, told: Callable[[str], None]) -> None:
        super().__init__()
        self.module = module
        self._call, self._told = call, told

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = self._call.around(tensors)
        found, nesting = taken_apart(self.module(*args, **kwargs))
        self._told(nesting)
        return tuple(found)


def export(module: nn.Module, call: Call, shapes: Sequence[Shapes], folder: Path) -> Exported:
    """`module` as ONNX in `folder`, for calls like `call` whose tensors are of `shapes`.

    Nothing is computed: the graph is traced. Raises Unfit for a module that cannot be exported, or only for fewer
    shapes than asked for.
    """
    nestings: list[str] = []
    flat = _Flat(module, call, nestings.append)
    example = tuple(_example(tensor, shape) for tensor, shape in zip(call.tensors, shapes, strict=True))
    moving = {i: dict.fromkeys(shape.moving, torch.export.Dim.DYNAMIC) for i, shape in enumerate(shapes)}
    file = folder / "model.onnx"
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                flat, example, dynamo=True, opset_version=OPSET, input_names=list(call.names),
                dynamic_shapes=(tuple(moving[i] or None for i in moving),), external_data=True, optimize=True,
                verbose=False,
            )  # fmt: skip
    except ImportError:  # the extra is not installed
        raise
    except Exception as error:  # of torch.export, of its decompositions, of onnxscript: many kinds
        raise Unfit(_first_line(error)) from error
    assert program is not None
    return _written(program, nestings[-1], file, shapes)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within it, the exporter keeps to itself how far it is, and what it thinks of its own libraries."""
    log, said = logging.getLogger("torch.onnx"), StringIO()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(said), redirect_stderr(said):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def _example(tensor: Tensor, shape: Shapes) -> Tensor:
    """A tensor of the largest shape: lengths of one would be taken for constants."""
    return torch.zeros(shape.most, dtype=tensor.dtype)


def _written(program: Any, nesting: str, file: Path, shapes: Sequence[Shapes]) -> Exported:
    import onnx

    model = program.model_proto
    for entry in (model.graph, *model.graph.node, *model.functions, *(n for f in model.functions for n in f.node)):
        entry.doc_string = ""  # lines of source, and paths of this machine
        del entry.metadata_props[:]
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        del value.metadata_props[:]
    del model.metadata_props[:]
    inputs = tuple(value.name for value in model.graph.input)
    for value, shape in zip(model.graph.input, shapes, strict=True):
        for at in shape.moving:
            if value.type.tensor_type.shape.dim[at].HasField("dim_value"):
                raise Unfit(f"`{value.name}` {shape} was taken for a constant at place {at}")
    weights = hashlib.sha256()
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor, empty in zip(model.graph.initializer, bare.graph.initializer, strict=True):
        if tensor.raw_data:
            weights.update(tensor.name.encode())
            weights.update(tensor.raw_data)
            empty.raw_data = b""
    graph = hashlib.sha256(bare.SerializeToString(deterministic=True)).hexdigest()
    outputs = tuple(value.name for value in model.graph.output)
    onnx.save_model(model, str(file), save_as_external_data=True, location=_WEIGHTS, size_threshold=1024)
    return Exported(file, graph, weights.hexdigest(), inputs, outputs, nesting)


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"torch cannot export it: {type(error).__name__}: {' '.join(lines[:3])}"
