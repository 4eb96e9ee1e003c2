"""What a module brings from the host to the device while it runs, as constants of its graph: `Carried`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from omnic.runtime.graphs import CaptureFailed

_LITERALS = (torch.tensor, torch.as_tensor)  # they copy where no mode of dispatch sees it
_LOOKS = ("item", "_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")


class Carried(TorchDispatchMode):
    """Within `running`, a copy from the host to the device is made the first time alone, and kept: tables of positions,
    masks made of lists. Later runs of the same module with arguments of the same shapes get what was kept, so that a
    graph may record them.

    That is right where what the host makes depends on nothing but shapes, which is tested: a module that brings other
    numbers in a later run, or looks at numbers of the device to make them, raises CaptureFailed.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's stubs miss it
        self._kind = device.type
        self._kept: list[tuple[Tensor, Tensor]] = []  # on the host, on the device
        self._at = 0
        self._first = True

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around one run of the module."""
        self._at = 0
        with ExitStack() as stack:
            if self._kind != "cpu":  # there is nothing to carry otherwise
                stack.enter_context(_Literals())
                stack.enter_context(self)
            yield
        self._first = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        to = next((leaf.type for leaf in leaves if isinstance(leaf, torch.device)), None)
        near = any(tensor.device.type == self._kind for tensor in tensors)
        host = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        copies = function is torch.ops.aten.copy_.default
        reads = function.overloadpacket.__name__ in _LOOKS or (copies and args[0].device.type == "cpu")
        if near and (reads or to == "cpu"):
            raise CaptureFailed("it looks at numbers of the device to decide what to do")
        if not near and host and to == self._kind:
            return self._constant(host[0], lambda: function(*args, **kwargs))
        if near and host:

            def brought(tensor: Tensor) -> Tensor:
                if tensor.device.type != "cpu" or not (tensor.ndim or copies):  # numbers go along with a launch
                    return tensor
                return self._constant(tensor, lambda: tensor.to(self._kind))

            args, given = tree_map_only(Tensor, brought, (args, kwargs))
            return function(*args, **given)
        return function(*args, **kwargs)

    def _constant(self, host: Tensor, make: Callable[[], Tensor]) -> Tensor:
        if self._first:
            self._kept.append((host.clone(), make()))
        at, self._at = self._at, self._at + 1
        if at >= len(self._kept) or not self._kept[at][0].equal(host):
            raise CaptureFailed("what it brings from the host is not the same each time")
        return self._kept[at][1].clone()  # what comes next may write into it


class _Literals(TorchFunctionMode):
    """Tensors of numbers in the source, first on the host."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if function in _LITERALS and not isinstance(args[0], Tensor) and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        if function is Tensor.new_tensor and "device" not in kwargs:
            like: Tensor = args[0]
            return torch.tensor(args[1], dtype=kwargs.get("dtype") or like.dtype).to(like.device)
        return function(*args, **kwargs)
