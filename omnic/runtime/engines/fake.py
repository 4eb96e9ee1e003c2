"""A builder for tests and for machines without TensorRT: its engines are the ONNX itself, run by onnxruntime."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.engines.builder import NoRunner, Session, Settings
from omnic.runtime.engines.calls import Shapes


@dataclass
class Reference:
    """Satisfies `builder.Builder`. Counts what it is asked for. `runs` is whether its engines can run here; `spoils`
    makes engines that compute something else."""

    name: str = "reference"
    version: str = "1"
    architecture: str = "sm_89"
    refits: bool = True
    runs: bool = True
    spoils: bool = False
    built: list[Mapping[str, Shapes]] = field(default_factory=list)
    refitted: int = 0
    loaded: int = 0

    def build(self, onnx: Path, shapes: Mapping[str, Shapes], settings: Settings) -> bytes:
        self.built.append(dict(shapes))
        return self._packed(onnx)

    def refit(self, engine: bytes, onnx: Path) -> bytes | None:
        if not self.refits:
            return None
        self.refitted += 1
        return self._packed(onnx)

    def session(self, engine: bytes) -> Session:
        if not self.runs:
            raise NoRunner("an engine of reference runs where a test lets it")
        self.loaded += 1
        return _Session(engine)

    def _packed(self, onnx: Path) -> bytes:
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            for file in sorted(onnx.parent.iterdir()):
                archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())
            archive.writestr(zipfile.ZipInfo("spoils"), json.dumps(self.spoils))
        return held.getvalue()


class _Session:
    def __init__(self, engine: bytes) -> None:
        import onnxruntime

        with TemporaryDirectory() as folder, zipfile.ZipFile(io.BytesIO(engine)) as archive:
            archive.extractall(folder)
            self._spoils = json.loads(archive.read("spoils"))
            self._session: Any = onnxruntime.InferenceSession(
                str(Path(folder) / "model.onnx"), providers=["CPUExecutionProvider"]
            )
        self._inputs = [value.name for value in self._session.get_inputs()]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def run(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        found = self._session.run(None, {name: tensors[name].numpy() for name in self._inputs})
        factor = 1.1 if self._spoils else 1.0
        return {name: torch.from_numpy(made) * factor for name, made in zip(self._outputs, found, strict=True)}
