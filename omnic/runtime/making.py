"""One result of a denoise stage in the making: what was asked for, how far it is, and how it gets to its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnic.contract.adapters import BASE
from omnic.runtime.diffusion import Ask, Job
from omnic.runtime.stepcache import Memories

Result = Mapping[str, Any] | Exception
"""The values of the output ports, or why there are none."""


@dataclass(eq=False, slots=True)
class Request:
    """What was asked for, on its way through the engine. The device's thread owns it, but for `cancelled`."""

    ask: Ask
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[Mapping[str, Any]]
    stepped: Callable[[int, int, Any], None]  # on the event loop: steps taken, steps in all, a preview or None
    previews: int  # how many of them are wanted
    job: Job | None = None  # once it has a slot
    memories: Memories = field(default_factory=dict)  # of its step cache
    cancelled: bool = False
    fused: int = 0  # in request mode, which batch it runs in; 0 while it waits for one
    turn: int = 0  # when it last stepped
    taken: int = 0  # steps
    skipped: int = 0  # forwards of one branch that the step cache made short
    busy_seconds: float = 0.0
    began_at: float = field(default_factory=time.perf_counter)

    @property
    def work(self) -> Job:
        assert self.job is not None, "it has a slot"
        return self.job

    @property
    def adapter(self) -> tuple[str, float]:
        """Which adapter it runs with, and how strongly."""
        name = self.ask.settings.get("lora", BASE)
        return name, 1.0 if name == BASE else float(self.ask.settings.get("lora_scale", 1.0))

    @property
    def group(self) -> Hashable:
        return self.work.group, self.adapter

    @property
    def shows(self) -> bool:
        """Whether the step just taken is one to show a preview of."""
        job = self.work
        return job.step < job.steps and job.step in (
            i * job.steps // (self.previews + 1) for i in range(self.previews + 1)
        )

    @property
    def where(self) -> str:
        """The step to come."""
        return f"step {self.work.step + 1} of {self.work.steps}"

    def let_go(self) -> None:
        """Frees the tensors."""
        self.skipped = sum(memory.skipped for memories in self.memories.values() for memory in memories)
        self.job, self.memories = None, {}

    def post(self, result: Result) -> None:
        """Ends it, on its event loop."""
        self.call(_settle, self.done, result)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Calls a function on its event loop."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the loop is closed, and nobody waits any more
            self.cancelled = True


def _settle(done: asyncio.Future[Mapping[str, Any]], result: Result) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
