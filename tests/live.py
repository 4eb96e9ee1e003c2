"""How many bytes of tensors are alive at once while something runs."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Peak(TorchDispatchMode):
    """While it is entered, `bytes` is the most that tensors made inside took at any time, those freed again left out.

    What an operation uses for itself is not seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self._now = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, torch.Tensor):
                self._known.add(leaf.untyped_storage()._cdata)  # made before, or counted already
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self._now += size
        self.bytes = max(self.bytes, self._now)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size
