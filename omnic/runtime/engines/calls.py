"""What a module is called with, taken apart: tensors, and everything else, which an engine is made for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Unfit(ValueError):
    """A module that no engine can be made of, or a call that no engine was made for. One line that says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a module. `names` are where its tensors are among the arguments. `signature` is equal for calls that
    differ in tensors alone: it stands for how arguments nest, their dtypes, and all that are no tensors."""

    names: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    signature: str
    _spec: Any = field(repr=False, compare=False)
    _leaves: tuple[Any, ...] = field(repr=False, compare=False)  # tensors among them

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        paths, spec = pytree.tree_flatten_with_path((args, dict(kwargs)))
        told = [str(leaf.dtype) if isinstance(leaf, Tensor) else repr(leaf) for _, leaf in paths]
        found = [(_name(path), leaf) for path, leaf in paths if isinstance(leaf, Tensor)]
        return cls(
            tuple(name for name, _ in found),
            tuple(tensor for _, tensor in found),
            hashlib.sha256(repr((str(spec), told)).encode()).hexdigest()[:8],
            spec,
            tuple(leaf for _, leaf in paths),
        )

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(tensor.shape) for tensor in self.tensors)

    def around(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of this call with `values` for its tensors."""
        given = iter(values)
        leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs


def _name(path: Sequence[Any]) -> str:
    """`states` for a keyword, `arg0` for a place; what is inside of one after it."""
    words = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", None)))) for key in path[1:]]
    first = words[0] if not words[0].isdecimal() else f"arg{words[0]}"
    return "_".join((first, *words[1:]))


class _Seen(BaseException):
    """A module was called, and is not run: no `except Exception` of what calls it may take it for a failure."""


@contextmanager
def recorded(modules: Mapping[str, nn.Module], *, run: bool) -> Iterator[dict[str, list[Call]]]:
    """The calls of `modules` within, by name. Without `run` the first call is where it ends: what calls the module
    goes no further, and so nothing is computed."""
    calls: dict[str, list[Call]] = {name: [] for name in modules}

    def watch(name: str) -> Callable[..., None]:
        def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            calls[name].append(Call.of(args, kwargs))
            if not run:
                raise _Seen

        return before

    handles = [m.register_forward_pre_hook(watch(n), with_kwargs=True) for n, m in modules.items()]
    try:
        yield calls
    except _Seen:
        pass
    finally:
        for handle in handles:
            handle.remove()


# --- results ----------------------------------------------------------------------------------------------------------


def taken_apart(value: Any) -> tuple[list[Tensor], str]:
    """The tensors in what a module gave, and as text how they nest, with what lies beside them. Raises Unfit for
    anything but tensors, numbers and words."""
    leaves, spec = pytree.tree_flatten(value)
    constants = {str(i): leaf for i, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)}
    for leaf in constants.values():
        if not isinstance(leaf, str | int | float | bool | None):
            raise Unfit(f"it gives a {type(leaf).__name__}, which is no tensor")
    text = json.dumps({"spec": pytree.treespec_dumps(spec), "count": len(leaves), "constants": constants})
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)], text


def put_together(tensors: Sequence[Tensor], nesting: str) -> Any:
    """What `taken_apart` took apart, of other tensors."""
    held, given = json.loads(nesting), iter(tensors)
    constants = held["constants"]
    leaves = [constants[str(i)] if str(i) in constants else next(given) for i in range(held["count"])]
    return pytree.tree_unflatten(leaves, pytree.treespec_loads(held["spec"]))


# --- ranges -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shapes:
    """The shapes that one tensor of a call may have: from `least` to `most`, place by place, most often `usual`."""

    least: tuple[int, ...]
    usual: tuple[int, ...]
    most: tuple[int, ...]

    @property
    def moving(self) -> tuple[int, ...]:
        """The places that are not always of one length."""
        return tuple(i for i, (a, b) in enumerate(zip(self.least, self.most, strict=True)) if a != b)

    def __contains__(self, shape: object) -> bool:
        return (
            isinstance(shape, tuple)
            and len(shape) == len(self.least)
            and all(a <= n <= b for a, n, b in zip(self.least, shape, self.most, strict=True))
        )

    def __str__(self) -> str:
        ends = zip(self.least, self.most, strict=True)
        return "[" + ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in ends) + "]"


def ranges(calls: Sequence[Call]) -> tuple[Shapes, ...]:
    """What the tensors of `calls` span; the first of them is the usual one. All must have one signature."""
    first = calls[0]
    if any(call.signature != first.signature for call in calls):
        raise AssertionError("calls of several signatures have no ranges in common")
    every = zip(*(call.shapes for call in calls), strict=True)
    return tuple(
        Shapes(tuple(map(min, *shapes, shapes[0])), shapes[0], tuple(map(max, *shapes, shapes[0]))) for shapes in every
    )
