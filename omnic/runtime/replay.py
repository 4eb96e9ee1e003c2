"""Calls of a module as graphs, one for each set of shapes that it is called with: `Replay`."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_map_only, tree_unflatten

from omnic.runtime.carried import Carried
from omnic.runtime.compiled import Compiled
from omnic.runtime.graphs import CaptureFailed, Graphs

log = logging.getLogger("omnic.replay")


class Replay:
    """Stands in for the forward of modules. Within `learning`, a call of shapes that it has not seen is recorded; after
    that, one of those shapes is a replay, and one of others runs as if it were not there, and is counted.

    A graph is of exact shapes and dtypes and of what arguments are no tensors; nothing is padded. What it gives are
    copies. A call that cannot be recorded runs as before, which is told in the log once a module, and counted.

    With `compiled`, blocks of the modules run compiled in all calls of shapes that were learnt.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], device: torch.device, compiled: Compiled | None = None
    ) -> None:
        self.graphs = Graphs(device)
        self.uncaptured = self.failures = 0
        self._device, self._compiled = device, compiled
        self._learns = False
        self._calls: dict[_Key, _Call | None] = {}  # None: of shapes that were learnt, and could not be recorded
        self._told: set[str] = set()
        for name, module in modules.items():
            self._stand_in(name, module)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Within it, what is called is recorded."""
        self._learns = True
        try:
            yield
        finally:
            self._learns = False

    def stats(self) -> dict[str, float]:
        """`uncaptured` counts calls of shapes that have no graph, `capture_failures` shapes that could not have one."""
        counts = {
            "uncaptured": self.uncaptured,
            "capture_failures": self.failures,
            **({} if self._compiled is None else {"compilations": self._compiled.compilations}),
        }
        return self.graphs.stats() | {name: float(count) for name, count in counts.items()}

    def _stand_in(self, name: str, module: Any) -> None:
        forward = module.forward

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves, spec = tree_flatten((args, kwargs))
            key = _Key(name, spec, tuple(map(_shape, leaves)))
            if self._learns and key not in self._calls:
                self._calls[key] = self._learnt(key, _Call(forward, leaves, spec, self._device))
            known = self._calls.get(key)
            if known is not None:
                return known.replayed(self.graphs, key, leaves)
            self.uncaptured += not self._learns
            with self._blocks(key in self._calls):
                return forward(*args, **kwargs)

        module.forward = call

    def _learnt(self, key: _Key, call: _Call) -> _Call | None:
        try:
            with self._blocks(True):
                call.run()  # what is brought from the host is noted, and blocks are compiled
                self.graphs.capture(key, call.run)
        except (CaptureFailed, torch.cuda.OutOfMemoryError) as error:
            self.failures += 1
            if key.name not in self._told:
                self._told.add(key.name)
                why = str(error.__cause__ or error) if isinstance(error, CaptureFailed) else "it has no memory for one"
                log.warning("%s runs without a graph: %s", key, why.splitlines()[0])
            return None
        return call

    @contextmanager
    def _blocks(self, learnt: bool) -> Iterator[None]:
        if self._compiled is None or not learnt:
            yield
            return
        with self._compiled.used():
            yield


@dataclass(frozen=True, slots=True)
class _Key:
    """What must be equal for two calls to share a graph: whose they are, how their arguments nest, and of each tensor
    its layout, of each other argument its value."""

    name: str
    spec: TreeSpec
    leaves: tuple[Hashable, ...]

    def __str__(self) -> str:
        shapes = ["x".join(map(str, leaf[1])) for leaf in self.leaves if isinstance(leaf, tuple) and leaf[0] is Tensor]
        return f"{self.name}({', '.join(shapes)})"


class _Call:
    """One call: copies of its tensors, which the graph reads, and what it gave last, which the graph writes."""

    def __init__(self, forward: Any, leaves: Sequence[Any], spec: TreeSpec, device: torch.device) -> None:
        self._forward, self._spec = forward, spec
        self._leaves = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._carried = Carried(device)
        self._made: Any = None

    def run(self) -> None:
        args, kwargs = tree_unflatten(self._leaves, self._spec)  # containers of its own: a module may use them up
        with self._carried.running():
            self._made = self._forward(*args, **kwargs)

    def replayed(self, graphs: Graphs, key: Hashable, leaves: Sequence[Any]) -> Any:
        for held, given in zip(self._leaves, leaves, strict=True):
            if isinstance(held, Tensor):
                held.copy_(given)
        graphs.replay(key)
        return tree_map_only(Tensor, torch.clone, self._made)


def _shape(leaf: Any) -> Hashable:
    if isinstance(leaf, Tensor):
        return Tensor, leaf.shape, leaf.dtype, leaf.stride(), leaf.device
    return type(leaf), leaf
