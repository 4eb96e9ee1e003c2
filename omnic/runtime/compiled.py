"""Repeated blocks of a module, compiled one kind at a time rather than the whole module: `Compiled`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from omnic.runtime.lock import cache_directory

Backend = Callable[[torch.fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]
_CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
_KINDS = 64  # most graphs of one kind of block; beyond it torch would go on eagerly, so none is left out in silence


class Compiled:
    """Blocks that run compiled within `used`, and as they are elsewhere. Blocks of one class share what is compiled:
    once for all sizes, as lengths are left open, also where two of them are equal in the first call.

    `compilations` counts the graphs that were compiled: it stays as it is once all shapes were seen.
    """

    def __init__(self, blocks: Iterable[nn.Module], backend: Backend | None = None) -> None:
        self.compilations = 0
        self._backend = backend
        self._used = False
        for block in blocks:
            forward = block.forward
            compiled = torch.compile(forward, backend=self._made, dynamic=True)
            object.__setattr__(block, "forward", partial(self._run, forward, compiled))

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it, blocks run compiled."""
        settings: Any = torch.fx.experimental._config  # which torch fills as it is imported
        self._used = True
        with (
            torch._dynamo.config.patch(recompile_limit=_KINDS, fail_on_recompile_limit_hit=True),
            settings.patch(use_duck_shape=False),  # else lengths that are equal once must always be
        ):
            try:
                yield
            finally:
                self._used = False

    def _run(self, forward: Any, compiled: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._used:
            return forward(*args, **kwargs)
        with ExitStack() as stack:  # torch compiles nothing, or something else, within modes
            for _ in range(torch._C._len_torch_function_stack()):
                stack.enter_context(torch.overrides._pop_mode_temporarily())
            stack.enter_context(torch.utils._python_dispatch._disable_current_modes())
            return compiled(*args, **kwargs)

    def _made(self, graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> Callable[..., Any]:
        made = (self._backend or _inductor())(graph, given)
        self.compilations += 1  # torch begins some of them twice
        return made


def _inductor() -> Backend:
    from torch._inductor.compile_fx import compile_fx

    found: Any = compile_fx
    return found  # type: ignore[no-any-return]  # torch says more of it than is asked of a backend


def repeated(modules: Iterable[nn.Module]) -> list[nn.Module]:
    """The blocks of which each module of diffusers has many, by what its class says. Raises ValueError for one that
    says nothing."""
    found = []
    for module in modules:
        kinds = getattr(module, "_repeated_blocks", None) or getattr(module, "_no_split_modules", None)
        if not kinds:
            raise ValueError(f"{type(module).__name__} does not say which of its blocks are repeated")
        found += [part for part in module.modules() if type(part).__name__ in kinds]
    return found


def keep_caches() -> None:
    """Has torch keep what it compiles with what omnic keeps, unless the environment says where. Before torch compiles
    anything."""
    for variable, folder in _CACHES.items():
        os.environ.setdefault(variable, str(cache_directory() / folder))
