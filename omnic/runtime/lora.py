"""LoRA: small additions to linear layers, `W + scale · B · A` (Hu et al., "LoRA: Low-Rank Adaptation of Large Language
Models", 2021). Several lie beside one base model; a request runs with one of them, or an adapter is added to the
weights for good when they are loaded.

Files are safetensors with PEFT's or diffusers' names (see omnic/contract/adapters.py). Their scale is `alpha / rank`,
where alpha stands in a tensor `….alpha`, in the file's own metadata (`lora_adapter_metadata`) or in an
adapter_config.json beside it, and 1 where it stands nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from omnic.contract import adapters
from omnic.contract.adapters import BASE
from omnic.runtime.home import CPU
from omnic.runtime.tensors import Shards
from omnic.runtime.weights import Checkpoint, Damaged


@runtime_checkable
class HasModules(Protocol):
    """A denoiser whose linear layers can be adapted."""

    def modules(self) -> Mapping[str, nn.Module]:
        """What adapters may be of, by the name that diffusers gives it in a pipeline: `transformer`, `unet`. Names in
        a file that begin with none of them are of the first."""
        ...


@dataclass(frozen=True, slots=True)
class Pair:
    """What an adapter adds to one linear layer: a [rank, in], b [out, rank], and the scale of their product."""

    a: Tensor
    b: Tensor
    scale: float


Adapter = Mapping[nn.Linear, Pair]


def read(checkpoint: Checkpoint, denoiser: object) -> Adapter:
    """The adapter of a checkpoint, in the dtype and on the device of the layers it adapts. Raises Damaged, which names
    the tensor, for one that is not of this denoiser's modules or that holds more than additions to linear layers."""
    if not isinstance(denoiser, HasModules):
        raise Damaged(f"`{checkpoint.model.name}`: the family of this model does not say what adapters may be of")
    modules = denoiser.modules()
    (path,) = checkpoint.files(".safetensors")
    source = Shards([path])
    try:
        layers = adapters.layers(source.shapes)
    except ValueError as error:
        raise Damaged(f"{path}: {error}") from None
    alpha = _alphas(path, checkpoint)
    adapter: dict[nn.Linear, Pair] = {}
    for module, names in layers.items():
        layer = _layer(module, modules, path)
        a, b = (_tensor(source, name, layer.weight.dtype, layer.weight.device) for name in names)
        if a.ndim != 2 or b.ndim != 2 or (b.shape[0], a.shape[1]) != layer.weight.shape or a.shape[0] != b.shape[1]:
            raise Damaged(
                f"{path}: `{module}` adds {list(b.shape)} x {list(a.shape)} to a layer of {list(layer.weight.shape)}"
            )
        key = f"{module}.alpha"
        given = float(_tensor(source, key, torch.float32, CPU)) if key in source else None
        adapter[layer] = Pair(a, b, alpha(module, len(a), given))
    return adapter


@torch.no_grad()
def fuse(adapter: Adapter, scale: float) -> None:
    """Adds an adapter to the weights for good."""
    for layer, pair in adapter.items():
        added = pair.b.float() @ pair.a.float() * (pair.scale * scale)
        layer.weight.copy_(layer.weight.float() + added)


class Adapters:
    """Adapters beside one base model, of which at most one counts at a time. Without one, layers run as they are."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = dict(adapters)
        self._active: tuple[Adapter, float] | None = None
        for layer in {layer for adapter in adapters.values() for layer in adapter}:
            layer.register_forward_hook(self._add)

    @contextmanager
    def using(self, name: str, scale: float) -> Iterator[None]:
        """Forwards within run with the adapter `name`, whose own scale is multiplied by `scale`; or with BASE."""
        self._active = None if name == BASE else (self._adapters[name], scale)
        try:
            yield
        finally:
            self._active = None

    def _add(self, layer: nn.Module, given: tuple[Any, ...], out: Tensor) -> Tensor | None:
        if self._active is None:
            return None
        adapter, scale = self._active
        pair = adapter.get(layer)  # type: ignore[call-overload]  # only linear layers are hooked
        if pair is None:
            return None
        low = nn.functional.linear(given[0], pair.a)
        added: Tensor = out + nn.functional.linear(low, pair.b) * (pair.scale * scale)
        return added


def _layer(name: str, modules: Mapping[str, nn.Module], path: Path) -> nn.Linear:
    component, rest = adapters.place(name, modules)
    try:
        layer = modules[component].get_submodule(rest)
    except AttributeError:
        raise Damaged(f"{path} adapts `{rest}`, which the model does not have") from None
    if not isinstance(layer, nn.Linear):
        raise Damaged(f"{path} adapts `{rest}`, which is no linear layer")
    return layer


def _tensor(source: Shards, name: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    held = torch.empty(source.shapes[name], dtype=dtype, device=device)
    source.read(name, held)
    return held


def _alphas(path: Path, checkpoint: Checkpoint) -> Callable[[str, int, float | None], float]:
    """(module, rank, alpha of a tensor) -> scale."""
    config = _config(path, checkpoint)

    def scale(module: str, rank: int, given: float | None) -> float:
        head = module.partition(".")[0]  # diffusers writes what it says of `transformer` as `transformer.lora_alpha`
        said = {key.removeprefix(f"{head}."): value for key, value in config.items()}
        alpha = given if given is not None else _matching(said.get("alpha_pattern"), module)
        alpha = said.get("lora_alpha") if alpha is None else alpha
        return 1.0 if alpha is None else float(alpha) / (rank**0.5 if said.get("use_rslora") else rank)

    return scale


def _config(path: Path, checkpoint: Checkpoint) -> Mapping[str, Any]:
    """What is said of the adapter beside its tensors, as PEFT names it."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    try:
        if text := header.get("__metadata__", {}).get("lora_adapter_metadata"):
            return dict(json.loads(text))
        if beside := checkpoint.files("adapter_config.json"):
            return dict(json.loads(beside[0].read_bytes()))
    except (ValueError, TypeError) as error:
        raise Damaged(f"what {path} says of its adapter cannot be read: {error}") from None
    return {}


def _matching(patterns: Mapping[str, float] | None, module: str) -> float | None:
    """The value of the first pattern that the end of a module's name fits."""
    return next((v for p, v in (patterns or {}).items() if re.fullmatch(rf"(.*\.)?({p})", module)), None)
