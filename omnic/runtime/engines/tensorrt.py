"""TensorRT, and TensorRT for RTX, as builders: `builder_for`. They share an API; the second also builds for GPUs that
are not there, and does not run on those of data centres."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnic.runtime.engines.builder import Builder, NoBuilder, NoRunner, Session, Settings
from omnic.runtime.engines.calls import Shapes, Unfit

_RTX, _RTX_LIBRARIES = "tensorrt_rtx_bindings", "onnxruntime_ep_nv_tensorrt_rtx"
_RTX_PACKAGES = "`pip install tensorrt-rtx-cu13-bindings onnxruntime-ep-nv-tensorrt-rtx-cu13`"
_FULL = "`pip install tensorrt`"
_SAID = 240  # characters of a message


@dataclass(frozen=True, slots=True)
class TensorRT:
    """Satisfies `builder.Builder`. `library` is the Python module of either."""

    name: str  # tensorrt | tensorrt-rtx
    version: str
    architecture: str
    library: Any = field(repr=False, compare=False)

    @property
    def refits(self) -> bool:
        """A replaceable engine is compiled with the GPU's driver; without one, weights are built in."""
        return architecture_here() is not None

    def build(self, onnx: Path, shapes: Mapping[str, Shapes], settings: Settings) -> bytes:
        trt, logger = self.library, _logger(self.library)
        builder = trt.Builder(logger)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
        if not parser.parse_from_file(str(onnx)):
            raise Unfit(f"{self.name} {self.version} does not take it: {_line(parser.get_error(0).desc())}")
        config = builder.create_builder_config()
        config.builder_optimization_level = settings.level
        config.clear_flag(trt.BuilderFlag.TF32)
        if self.refits:
            config.set_flag(trt.BuilderFlag.REFIT)
        if settings.workspace_bytes:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
        if self.name == "tensorrt-rtx":
            config.num_compute_capabilities = 1
            config.set_compute_capability(_capability(trt, self.architecture), 0)
        profile = builder.create_optimization_profile()
        for index in range(network.num_inputs):
            name = network.get_input(index).name
            shape = shapes[name]
            profile.set_shape(name, shape.least, shape.usual, shape.most)
        config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise Unfit(f"{self.name} {self.version} cannot build it: {_line(logger.last)}")
        return bytes(plan)

    def refit(self, engine: bytes, onnx: Path) -> bytes | None:
        trt, logger = self.library, _logger(self.library)
        held = trt.Runtime(logger).deserialize_cuda_engine(engine)
        if held is None:
            return None
        refitter = trt.Refitter(held, logger)
        parser = trt.OnnxParserRefitter(refitter, logger)
        if not parser.refit_from_file(str(onnx)) or not refitter.refit_cuda_engine():
            return None
        return bytes(held.serialize())

    def session(self, engine: bytes) -> Session:
        from omnic.runtime.engines.session import TensorSession

        if why := self._unable():
            raise NoRunner(why)
        trt, logger = self.library, _logger(self.library)
        held = trt.Runtime(logger).deserialize_cuda_engine(engine)
        if held is None:
            raise NoRunner(f"{self.name} {self.version} cannot load the engine: {_line(logger.last)}")
        return TensorSession(trt, held)

    def _unable(self) -> str | None:
        """Why engines of this kind cannot run here."""
        here = architecture_here()
        if here is None:
            return f"an engine of {self.name} runs on an NVIDIA GPU, and torch finds none here"
        if self.name == "tensorrt-rtx" and not hasattr(self.library.ComputeCapability, _member(here)):
            return f"TensorRT for RTX does not run on {here}: install TensorRT, {_FULL}, and build again"
        return None


def builder_for(architecture: str) -> Builder:
    """What builds for GPUs of `architecture` (`sm_89`) here: TensorRT on such a GPU, else TensorRT for RTX. Raises
    NoBuilder, which says what is missing."""
    here, full = architecture_here(), _full()
    if full is not None and here == architecture:
        return full
    rtx = _rtx()
    if rtx is not None and hasattr(rtx.ComputeCapability, _member(architecture)):
        return TensorRT("tensorrt-rtx", str(rtx.__version__), architecture, rtx)
    where = f"this machine has {f'one of {here}' if here else 'no GPU that torch can use'}"
    if full is not None:
        raise NoBuilder(f"TensorRT builds for {architecture} on such a GPU alone, and {where}")
    if rtx is not None:
        known = ", ".join(sorted(f"sm_{name[2:]}" for name in dir(rtx.ComputeCapability) if name.startswith("SM")))
        raise NoBuilder(
            f"TensorRT for RTX builds for {known}, not for {architecture}: it needs TensorRT, {_FULL}, and {where}"
        )
    raise NoBuilder(
        f"no TensorRT is installed, which {architecture} needs: {_FULL} on such a GPU, or {_RTX_PACKAGES} for RTX ones"
    )


def architecture_here() -> str | None:
    """Of the current GPU, as `sm_89`; None where torch can use none."""
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def _full() -> TensorRT | None:
    if importlib.util.find_spec("tensorrt") is None:
        return None
    trt: Any = importlib.import_module("tensorrt")
    here = architecture_here()
    return None if here is None else TensorRT("tensorrt", str(trt.__version__), here, trt)


def _rtx() -> Any:
    """The module of TensorRT for RTX, None unless it and its libraries are installed with equal versions."""
    if importlib.util.find_spec(_RTX) is None or (found := importlib.util.find_spec(_RTX_LIBRARIES)) is None:
        return None
    (folder,) = found.submodule_search_locations or ("",)
    for stem in ("libtensorrt_rtx", "libtensorrt_onnxparser_rtx"):
        for file in sorted(Path(folder).glob(f"{stem}.so.*")):
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL)  # the bindings look for their symbols in what is loaded
    return importlib.import_module(_RTX)


def _member(architecture: str) -> str:
    """Its name among TensorRT's compute capabilities."""
    return architecture.replace("sm_", "SM")


def _capability(trt: Any, architecture: str) -> Any:
    return getattr(trt.ComputeCapability, _member(architecture))


def _line(said: str) -> str:
    """The beginning of what TensorRT says of a mistake, which may hold all numbers of a layer."""
    first = " ".join(said.split())
    return first[:_SAID] + "…" * (len(first) > _SAID) if first else "it does not say why"


def _logger(trt: Any) -> Any:
    """Keeps the last error that TensorRT told of, and prints nothing."""

    class Logger(trt.ILogger):  # type: ignore[misc]  # a class of an extension without types
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.last = ""

        def log(self, severity: Any, message: str) -> None:
            if severity <= trt.ILogger.Severity.ERROR:
                self.last = message

    return Logger()
