"""Captured graphs: work on static buffers, recorded once and replayed with one launch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

Body = Callable[[], None]
"""Reads and writes tensors that live as long as the graph. On a GPU it must not wait for the device, branch on what is
there, or copy from memory that is not pinned."""

_WARM_UPS = 2  # libraries choose kernels and take their workspaces in the first calls, which a capture forbids


class CaptureFailed(RuntimeError):
    """A body that could not be recorded. Says which, and why."""


@dataclass(eq=False, slots=True)
class Graph:
    """One body, ready to be replayed on the device's current stream."""

    key: Hashable
    replay: Callable[[], None]
    pool_bytes: int  # what its capture added to the pool


@dataclass(eq=False, slots=True)
class Graphs:
    """The graphs of one engine, all in one memory pool. On a CPU a replay is a call of the body, with the same rules:
    what it wrote is overwritten by the next replay, so what is handed out is copied.

    The counters prove what the plan says: `captures` stays as it is once warm-up is over.
    """

    device: torch.device
    captures: int = 0
    replays: int = 0
    _held: dict[Hashable, Graph] = field(default_factory=dict)
    _pool: Any = None
    _side: Any = None  # the stream of all captures: the allocator gives no block of one stream to another

    def stats(self) -> dict[str, float]:
        """Graphs, how often one was replayed, and the device memory of all together."""
        return {
            "graphs": float(self.captures),
            "graph_replays": float(self.replays),
            "graph_bytes": float(sum(graph.pool_bytes for graph in self._held.values())),
        }

    def capture(self, key: Hashable, body: Body) -> Graph:
        """Records `body` under `key`. It runs a few times before, and must end the same for that. With the largest
        recorded first, the others fit into its memory.

        Raises CaptureFailed, or torch's OutOfMemoryError; graphs recorded before stay usable.
        """
        graph = self._recorded(key, body) if self.device.type == "cuda" else Graph(key, body, 0)
        self._held[key] = graph
        self.captures += 1
        return graph

    def replay(self, key: Hashable) -> None:
        """Raises KeyError for a key that was not captured."""
        self._held[key].replay()
        self.replays += 1

    def clear(self) -> None:
        """Lets go of all graphs and their memory."""
        self._held.clear()
        self._pool = None

    def _recorded(self, key: Hashable, body: Body) -> Graph:
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch's stubs miss it
        side = self._side
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(1 if self._held else _WARM_UPS):
                body()
        torch.cuda.current_stream(self.device).wait_stream(side)
        torch.cuda.synchronize(self.device)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(self.device)
        gc.disable()  # memory of the device that the collector lets go of would end the capture
        try:
            with torch.cuda.graph(graph, pool=self._pool, stream=side, capture_error_mode="thread_local"):
                body()
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise CaptureFailed(f"`{key}` cannot be captured: {str(error).splitlines()[0]}") from error
        finally:
            gc.enable()
        return Graph(key, graph.replay, torch.cuda.memory_reserved(self.device) - before)
