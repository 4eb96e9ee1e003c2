"""Modules of torch that are built without memory and filled with weights where they will stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import nn

from omnic.runtime.home import Home, settled
from omnic.runtime.product import quantised
from omnic.runtime.tensors import Loaded, Source
from omnic.runtime.weights import Damaged


def filled(
    build: Callable[[], nn.Module],
    source: Source,
    home: Home,
    loaded: Loaded,
    *,
    skip: tuple[str, ...] = (),
    eight: Callable[[str], bool] | None = None,
) -> nn.Module:
    """The module that `build` makes, with every parameter and saved buffer read from `source` to where and how `home`
    wants them.

    It is built on the meta device, so that no weight is made only to be overwritten; buffers that are not saved
    (tables computed from the config) are made for real. What a class of diffusers wants in float32 stays so. Parts
    whose names begin with one of `skip` are left empty, and cannot be used. Matrices whose names are `eight` are held
    in fp8, with a buffer `weight_scale` beside them, for networks that multiply so: the module cannot be called then.
    Raises Damaged if `source` lacks a tensor.
    """
    dtype, device = home.torch_dtype, home.device
    module = build_empty(build)
    tied = _tied(module)
    wide = _float32(module)
    eight = eight or (lambda name: False)
    state = module.state_dict(keep_vars=True)
    wanted = {name: t for name, t in state.items() if name not in tied and not (skip and name.startswith(skip))}
    dtypes = {name: torch.float32 if not wide.isdisjoint(name.split(".")) else dtype for name in wanted}
    held_as = {
        name: (tuple(tensor.shape), dtypes[name] if tensor.is_floating_point() else tensor.dtype)
        for name, tensor in wanted.items()
    }
    total = sum(
        prod(shape) + 4 * shape[0] if eight(name) else prod(shape) * kind.itemsize
        for name, (shape, kind) in held_as.items()
    )
    rooms = home.offload.rooms(module, held_as) if home.offload is not None else {}
    done, shared = 0, dict[int, torch.Tensor]()
    for name, tensor in wanted.items():
        if id(tensor) in shared:
            _put(module, name, shared[id(tensor)])  # tied weights stay tied
            continue
        if name not in source:
            raise Damaged(f"the checkpoint lacks `{name}`")
        shape, kind = held_as[name]
        held = rooms[name] if name in rooms else torch.empty(shape, dtype=kind, device=device)
        source.read(name, held)
        if eight(name):
            done += _put_eight(module, name, held)
        else:
            shared[id(tensor)] = held
            _put(module, name, held)
            done += held.nbytes
        loaded(done, total)
    for name, origin in tied.items():
        _put(module, name, shared[id(state[origin])])
    for name in state.keys() - wanted.keys() - tied.keys():
        _put(module, name, torch.empty_like(state[name], device="meta"))
    _tables(module, device)
    return settled(module.eval().requires_grad_(False), device)


def _tables(module: nn.Module, device: torch.device) -> None:
    """Brings buffers that are not saved to the device."""
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and not buffer.is_meta and buffer.device != device:
                part._buffers[name] = buffer.to(device)


def held(module: nn.Module) -> torch.Tensor:
    """A weight of `module`, whose dtype and device what it works on must have: `x.to(held(module))`."""
    return next(p for p in module.parameters() if not p.is_meta)


def _tied(module: nn.Module) -> dict[str, str]:
    """Weights that transformers takes from another tensor of the same module, by name."""
    names = getattr(module, "_tied_weights_keys", None)
    return dict(names) if isinstance(names, dict) else {}


def _float32(module: nn.Module) -> set[str]:
    """Parts of names whose tensors a class of diffusers keeps in float32. (transformers means another thing by it.)"""
    diffusers = type(module).__module__.startswith("diffusers.")
    return set(getattr(module, "_keep_in_fp32_modules", None) or ()) if diffusers else set()


def build_empty(build: Callable[[], nn.Module]) -> nn.Module:
    """What `build` makes, its parameters on the meta device, tied ones still tied, its buffers as they are."""
    with _parameters_on_meta():
        return build()


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Within it, a parameter is on the meta device from when a module gets it. (accelerate's way to do this makes two
    of one that two modules share.)"""
    modules: Any = nn.Module
    register = modules.register_parameter

    def registered(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        register(module, name, parameter)
        if parameter is not None and not parameter.is_meta:
            module._parameters[name] = nn.Parameter(parameter.to("meta"), parameter.requires_grad)

    modules.register_parameter = registered
    try:
        yield
    finally:
        modules.register_parameter = register


def _put_eight(module: nn.Module, name: str, weight: torch.Tensor) -> int:
    """Puts a matrix in fp8 where `name` is, with its scale; how many bytes both have."""
    narrow, scale = quantised(weight)
    _put(module, name, narrow)
    module.get_submodule(name.rpartition(".")[0]).register_buffer("weight_scale", scale)
    return narrow.nbytes + scale.nbytes


def in_fp8(module: nn.Module, eight: Callable[[str], bool]) -> None:
    """Brings the matrices whose names are `eight` into fp8, as `filled` does with those it reads."""
    for name, weight in list(module.named_parameters()):
        if eight(name):
            _put_eight(module, name, weight)


def _put(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    owner, _, leaf = name.rpartition(".")
    put(module.get_submodule(owner), leaf, tensor)


def put(owner: nn.Module, leaf: str, tensor: torch.Tensor) -> None:
    """Puts a tensor where the parameter or buffer `leaf` of `owner` is."""
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(tensor, requires_grad=False)
    else:
        owner._buffers[leaf] = tensor
