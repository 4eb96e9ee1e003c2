"""What the catalog says of a checkpoint: its `Model`, the `Part`s it offers, their ports, keys and costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omnic.contract.domains import Domain
from omnic.contract.types import Type
from omnic.expr import Expr, Literal
from omnic.manifest import File

STREAM_MODES = ("token", "word", "clause", "sentence", "chunk", "whole")  # finest first


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a part. `streams` are the modes it can give or take, finest first."""

    name: str
    type: Type
    required: bool = True
    streams: tuple[str, ...] = ("whole",)
    feedback: bool = False  # may close a cycle
    origin: str = ""  # where the numbers in its type were read


@dataclass(frozen=True, slots=True)
class Key:
    """A setting of a part. With `field`, requests may set it under that name unless the source pins it."""

    name: str
    type: Type
    default: Any
    domain: Domain | None = None
    doc: str = ""
    field: str | None = None


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Tensors that load and move together. `bytes` is exactly what they hold when loaded as planned."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """Formulas over the shape of a request; names are bound by the pass that evaluates them.

    `kv_bytes_per_token` and `weights` are for the stated dtype. `activation_bytes` may use `batch`, `tokens`
    (rows in one forward) and `context`; `flops_per_token` is for one token of one sequence.
    """

    weights: tuple[WeightGroup, ...] = ()
    kv_bytes_per_token: int = 0
    activation_bytes: Expr = Literal(0)
    flops_per_token: Expr = Literal(0)
    process_bytes: int = 0  # what its libraries add to a process that hosts it

    @property
    def weight_bytes(self) -> int:
        return sum(g.bytes for g in self.weights)


@dataclass(frozen=True, slots=True)
class Part:
    """A stage that a model can be: `lm.generate`, `voice.synthesize`."""

    name: str
    kind: str  # generate | decode | transform | python | denoise
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    keys: tuple[Key, ...] = ()
    cost: Cost = Cost()
    doc: str = ""
    max_context: int | None = None  # tokens, for parts that keep a KV cache
    unsupported: str | None = None  # why it cannot run yet; the checker says so


@dataclass(frozen=True, slots=True)
class Model:
    """A checkpoint, resolved without reading a weight."""

    family: str
    format: str  # safetensors | gguf | onnx | random
    parts: dict[str, Part]
    config: dict[str, Any] = field(default_factory=dict)
    files: tuple[File, ...] = ()
    root: str | None = None  # directory on this machine that holds `files`; None for shipped fixtures
    revision: str | None = None
    license: str = "unknown"
    origin: str = ""  # the file the numbers were read from
