"""A TensorRT engine that runs on torch's tensors, by their addresses: `TensorSession`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from omnic.runtime.engines.calls import Unfit


class TensorSession:
    """Satisfies `builder.Session`. Inputs are on the engine's device; so are outputs, made anew for each run.

    It runs on a stream of its own, which waits for the caller's and is waited for: TensorRT slows down on the default
    one. While the caller's stream is captured into a CUDA graph it runs on that, so that the graph holds it.
    """

    def __init__(self, trt: Any, engine: Any) -> None:
        self._engine, self._context = engine, engine.create_execution_context()
        self._device = torch.device("cuda", torch.cuda.current_device())
        self._stream: Any = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch misses its type
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        modes = {name: engine.get_tensor_mode(name) for name in names}
        self._inputs = [name for name in names if modes[name] == trt.TensorIOMode.INPUT]
        self._outputs = [name for name in names if modes[name] == trt.TensorIOMode.OUTPUT]
        self._dtypes = {name: _dtype(trt, engine.get_tensor_dtype(name)) for name in names}

    def run(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Raises Unfit for shapes or dtypes outside of what it was built for."""
        held = []
        for name in self._inputs:
            tensor = tensors[name]
            if tensor.dtype != self._dtypes[name] or tensor.device != self._device:
                wanted = f"{self._dtypes[name]} on {self._device}"
                raise Unfit(f"`{name}` is {tensor.dtype} on {tensor.device}, and the engine takes {wanted}")
            if not self._context.set_input_shape(name, tuple(tensor.shape)):
                raise Unfit(f"`{name}` {list(tensor.shape)} is outside of what the engine was built for")
            held.append(tensor.contiguous())
            self._context.set_tensor_address(name, held[-1].data_ptr())
        outputs = {}
        for name in self._outputs:
            shape = tuple(self._context.get_tensor_shape(name))
            outputs[name] = torch.empty(shape, dtype=self._dtypes[name], device=self._device)
            self._context.set_tensor_address(name, outputs[name].data_ptr())
        caller = torch.cuda.current_stream(self._device)
        if torch.cuda.is_current_stream_capturing():
            self._enqueue(caller)
            return outputs
        self._stream.wait_stream(caller)
        self._enqueue(self._stream)
        caller.wait_stream(self._stream)  # what frees `held` or reuses outputs comes after on the caller's stream
        return outputs

    def _enqueue(self, stream: Any) -> None:
        if not self._context.execute_async_v3(stream.cuda_stream):
            raise RuntimeError("TensorRT could not start the engine")


def _dtype(trt: Any, dtype: Any) -> torch.dtype:
    known = {
        trt.float32: torch.float32, trt.float16: torch.float16, trt.bfloat16: torch.bfloat16,
        trt.int64: torch.int64, trt.int32: torch.int32, trt.int8: torch.int8, trt.uint8: torch.uint8,
        trt.bool: torch.bool,
    }  # fmt: skip
    return known[dtype]
