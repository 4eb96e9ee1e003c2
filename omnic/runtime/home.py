"""Where and how the weights of a stage are held: `Home`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from omnic.runtime.tensors import dtype_of

if TYPE_CHECKING:
    from omnic.runtime.offload import Offload

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Home:
    """The dtype, as a manifest calls it, and the device of weights. With `offload`, blocks of transformers lie on the
    host instead, as it says."""

    dtype: str
    device: torch.device = CPU
    offload: Offload | None = field(default=None, compare=False)

    @property
    def torch_dtype(self) -> torch.dtype:
        """Of what is computed, and of weights that are not in fp8."""
        return torch.bfloat16 if self.fp8 else dtype_of(self.dtype)

    @property
    def fp8(self) -> bool:
        """Whether the weights that a family's network multiplies in fp8 are held so."""
        return self.dtype == "float8"


def settled(module: nn.Module, device: torch.device) -> nn.Module:
    """`module`, whose weights are on `device`, with whatever it is called with brought there first."""
    if device.type != "cpu":
        module.register_forward_pre_hook(
            lambda _, args, kwargs: (moved(args, device), moved(kwargs, device)), with_kwargs=True
        )
    return module


def moved(value: Any, device: torch.device) -> Any:
    """`value` with all its tensors on `device`: a tensor, or a container or dataclass of such at any depth. What holds
    none comes back as it is."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple | list):
        items = [moved(item, device) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return {name: moved(item, device) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {f.name: getattr(value, f.name) for f in fields(value)}
        found = {name: moved(item, device) for name, item in held.items()}
        changed = {name: item for name, item in found.items() if item is not held[name]}
        return replace(value, **changed) if changed else value
    return value
