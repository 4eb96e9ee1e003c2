"""What makes engines of ONNX: the `Builder` protocol, and which builder a target has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch import Tensor

from omnic.runtime.engines.calls import Shapes
from omnic.runtime.errors import Elsewhere


class NoBuilder(Elsewhere):
    """No builder here makes engines for the target. One line that says what is missing."""


class NoRunner(Elsewhere):
    """Engines of this kind cannot run here. One line that says why."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a builder is told besides the graph. `level` is how long it searches, 0 to 5; `workspace_bytes` is what a
    layer may take for itself (0: all there is). fp32 is never computed as TF32."""

    level: int = 3
    workspace_bytes: int = 0

    def record(self) -> Mapping[str, int]:
        return {"level": self.level, "workspace_bytes": self.workspace_bytes}


class Session(Protocol):
    """An engine that runs."""

    def run(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The outputs by name, in tensors of their own, of inputs by name. Raises calls.Unfit for an input that the
        engine was not built for."""
        ...


class Builder(Protocol):
    """Makes engines for one architecture. Engines of equal `name`, `version` and `architecture` are of one kind."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def architecture(self) -> str: ...
    @property
    def refits(self) -> bool:
        """Whether engines that it builds here can be given other weights here."""
        ...

    def build(self, onnx: Path, shapes: Mapping[str, Shapes], settings: Settings) -> bytes:
        """The engine of the ONNX file, for inputs of these shapes. Raises calls.Unfit for a graph it does not take."""
        ...

    def refit(self, engine: bytes, onnx: Path) -> bytes | None:
        """`engine` with the weights of another ONNX file of the same graph; None if it does not take them."""
        ...

    def session(self, engine: bytes) -> Session:
        """Raises NoRunner where engines of this kind cannot run."""
        ...


def builder_for(architecture: str) -> Builder:
    """TensorRT where it is installed, else TensorRT for RTX. Raises NoBuilder."""
    from omnic.runtime.engines import tensorrt

    return tensorrt.builder_for(architecture)
