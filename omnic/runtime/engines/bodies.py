"""What of a loaded stage an engine can take the place of: `bodies`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

from torch import nn

from omnic.runtime.engines import turned

Forward = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Body:
    """A module that a stage calls. What is exported is `inner`: most often the module itself. `wrap` makes of
    something that is called like `inner` (itself, or an engine) the forward of the module."""

    name: str
    module: nn.Module
    inner: nn.Module
    wrap: Callable[[Forward], Forward]

    def put(self, forward: Forward) -> None:
        """From now on the stage runs `forward` in place of `inner`."""
        self.module.forward = self.wrap(forward)  # of this one module, not of its class

    def restore(self) -> None:
        """The module runs itself again."""
        vars(self.module).pop("forward", None)


def bodies(part: Any) -> tuple[Body, ...]:
    """The modules that a loaded part calls as a whole, each under a name that says where the part holds it.

    A part whose calls are finer than that has `bodies()`, which names the modules to take.
    """
    named = part.bodies() if hasattr(part, "bodies") else part.modules() if hasattr(part, "modules") else None
    found = dict(_held(part, "", set())) if named is None else dict(named)
    return tuple(Body(name, module, *_inner(module)) for name, module in found.items())


def _inner(module: nn.Module) -> tuple[nn.Module, Callable[[Forward], Forward]]:
    match type(module).__name__:
        case "QwenImageTransformer2DModel":
            return turned.qwen_image(module)
        case "ZImageTransformer2DModel":
            return turned.z_image(module)
    return module, lambda forward: forward


def _held(value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    """Modules that an object of omnic's holds: in its attributes, in what its methods are bound to, in functions'
    closures. Each once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    match value:
        case nn.Module():
            yield name or "module", value
        case MethodType():
            yield from _held(value.__self__, name, seen)
        case Mapping():
            for key, item in value.items():
                yield from _held(item, _below(name, key), seen)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _held(item, _below(name, index), seen)
        case _ if isinstance(closure := getattr(value, "__closure__", None), tuple):
            for cell in closure:
                yield from _held(cell.cell_contents, name, seen)
        case _ if type(value).__module__.startswith("omnic.") and hasattr(value, "__dict__"):
            for key, item in vars(value).items():
                yield from _held(item, _below(name, key.strip("_")), seen)


def _below(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)
