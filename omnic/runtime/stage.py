"""What the runtime asks of a stage, whatever engine is under it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from omnic.runtime.edges import Port

Progress = Callable[[str, int, int], None]
"""Called while loading: stage name, bytes loaded, bytes to load."""


class Running:
    """A stage at work on one request; its output ports are attributes (`think.text`)."""

    def __init__(self, ports: Mapping[str, Port]) -> None:
        self._ports = dict(ports)

    def __getattr__(self, name: str) -> Port:
        try:
            return self._ports[name]
        except KeyError:
            raise AttributeError(f"no output port `{name}`; there are {', '.join(self._ports)}") from None


class Stage(Protocol):
    """A loaded part of a model. `start` registers work with the flow and returns at once.

    `load` blocks and runs in a thread; all else is called from the event loop. A stage that is given what it
    cannot serve raises RequestError from its work, before it gives its first item.
    """

    name: str

    def load(self, progress: Progress) -> None: ...

    @property
    def start(self) -> Callable[..., Running]:
        """`start(flow, port=…, key=…)`: each stage has its own keywords, which generated code passes."""
        ...

    async def close(self) -> None: ...

    def stats(self) -> dict[str, float]:
        """Counters and gauges by metric name, e.g. `requests`, `tokens`, `busy_seconds`, `queue`."""
        ...
