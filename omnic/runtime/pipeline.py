"""The base of every generated pipeline: loading its stages, and letting go of them."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from omnic import manifest
from omnic.runtime import lock
from omnic.runtime.device import Device
from omnic.runtime.errors import Elsewhere
from omnic.runtime.lock import build_command, origin
from omnic.runtime.stage import Progress, Stage
from omnic.runtime.weights import Checkpoint, locate

if TYPE_CHECKING:
    from omnic.runtime.engines.ahead import Ahead

S = TypeVar("S", bound=Stage)


@dataclass(frozen=True, slots=True)
class Build:
    """An opened build directory."""

    path: Path
    manifest: manifest.Manifest
    devices: dict[str, Device] = field(default_factory=dict, compare=False)  # by name, made when first asked for

    @classmethod
    def open(cls, path: Path) -> Build:
        """Raises manifest.ManifestError, or Elsewhere for a build that is planned for GPUs that are not here."""
        content = manifest.read(path)
        wanted = content.gpus
        if wanted and (seen := _gpus()) < wanted:
            raise Elsewhere(
                f"{path} is planned for {content.target}, and torch sees {seen or 'no'} GPU{'s' * (seen > 1)} here;"
                f" to run it without, `{build_command(path, '--target', 'cpu')}`"
            )
        return cls(path, content)

    def device(self, name: str, threads: int = 0) -> Device:
        """The thread that does the work of a device, which all stages placed there share; `threads` as `Device`."""
        return self.devices.setdefault(name, Device(name, threads))

    def engines(self, stage: str) -> Ahead:
        """The engines of a stage that were made ahead. Raises errors.Stale for a lock that cannot be read."""
        from omnic.runtime.engines.ahead import Ahead, Record

        held = [Record(**record) for record in lock.engines(self.path) if record["stage"] == stage]
        return Ahead(self.path / "engines", held)

    def checkpoint(self, model: str) -> Checkpoint:
        """Where a model of the manifest lies on this machine. Raises weights.Missing, which names the part."""
        return locate(self.manifest.model(model), origin(self.path).parent)


def _gpus() -> int:
    """How many this process may use."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def generated(build: Path, class_name: str) -> type[Pipeline]:
    """The pipeline class of a build directory. Importing it imports what its stages need.

    Raises manifest.ManifestError if the directory has no pipeline.py.
    """
    file = build.resolve() / "pipeline.py"
    name = f"omnic_build_{class_name}_{hashlib.sha256(bytes(file)).hexdigest()[:12]}"  # builds of one pipeline are two
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the class finds its own directory through it
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, FileNotFoundError) and not file.exists():
            raise manifest.ManifestError(f"{build} is not a build directory: it has no pipeline.py") from None
        raise
    found: type[Pipeline] = getattr(module, class_name)
    return found


def _silent(stage: str, done: int, total: int) -> None: ...


class Pipeline:
    """Generated classes derive from this: they add stages in `__init__` and one method per served slice."""

    def __init__(self, build: Build) -> None:
        self.build = build
        self.stages: list[Stage] = []

    def add(self, stage: S) -> S:
        self.stages.append(stage)
        return stage

    @classmethod
    @asynccontextmanager
    async def load(cls, *, progress: Progress = _silent) -> AsyncIterator[Self]:
        """Loads every stage into this process and yields the pipeline; its slices are then ready to call.

        Raises Missing or Damaged for weights that cannot be used, Elsewhere for a build that cannot run here.
        """
        file = sys.modules[cls.__module__].__file__
        assert file is not None, "generated pipelines are files"
        pipeline = cls(Build.open(Path(file).parent))
        try:
            for stage in pipeline.stages:
                await asyncio.to_thread(stage.load, progress)
            yield pipeline
        finally:
            await asyncio.gather(*(stage.close() for stage in pipeline.stages))
            for device in pipeline.build.devices.values():
                await asyncio.to_thread(device.close)
