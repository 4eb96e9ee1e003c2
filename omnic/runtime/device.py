"""The thread that does a device's work, for all stages placed there."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from omnic.runtime import heap

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Turn = Callable[[], bool]
"""Takes one step of an engine; whether there was one to take."""

log = logging.getLogger("omnic.device")


class Device:
    """Runs calls one after the other, and between them the turns of engines, so that none waits for another's whole
    work. One thread a device: OpenMP keeps a team of threads for each thread that uses torch, and two teams hinder
    each other.

    `threads` is torch's share of the processor; 0 is all that this process may use.
    """

    def __init__(self, name: str = "cpu", threads: int = 0) -> None:
        heap.keep()  # before there is a thread with a heap of its own
        self.name = name
        self._cores = threads or len(os.sched_getaffinity(0))
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._turns: tuple[Turn, ...] = ()
        self._lock = threading.Lock()  # of all that is above and below
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    # --- any thread ------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Puts `work` in line; cancelled before its turn, it is passed over. Raises RuntimeError once closed."""
        future: Future[T] = Future()
        with self._lock:
            if self._closing:
                raise RuntimeError(f"device `{self.name}` was closed")
            self._calls.append((future, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name=f"omnic {self.name}", daemon=True)
                self._thread.start()
        self._wake.set()
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, from the event loop. Cancelled, work that has begun still ends, and is forgotten."""
        return await asyncio.wrap_future(self.submit(work))

    def attend(self, turn: Turn) -> None:
        """Calls `turn` again and again, in turn with others, while it returns True; after that on every `wake`."""
        with self._lock:
            self._turns = (*self._turns, turn)
        self._wake.set()

    def leave(self, turn: Turn) -> None:
        """Calls `turn` no more, but for a call that has begun. Does nothing if it was not attended to."""
        with self._lock:
            self._turns = tuple(t for t in self._turns if t != turn)

    @property
    def torch(self) -> torch.device:
        """What torch calls it. `gpu0` of a plan is the first that this process may see."""
        import torch

        if self.name.startswith("gpu"):
            return torch.device("cuda", int(self.name.removeprefix("gpu")))
        return torch.device("cpu")

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """Ends the thread after the call it is at. Calls still in line are cancelled."""
        with self._lock:
            self._closing = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        while self._calls:
            self._calls.popleft()[0].cancel()

    # --- the device's thread ---------------------------------------------------------------------------------------

    def _main(self) -> None:
        import torch

        torch.set_num_threads(self._cores)
        if self.torch.type == "cuda":
            torch.cuda.set_device(self.torch)
        with torch.inference_mode():
            while not self._closing:
                self._wake.clear()
                busy = self._call()
                for turn in self._turns:
                    busy |= self._take(turn)
                if not busy:
                    self._wake.wait()

    def _call(self) -> bool:
        """The call that has waited longest, if there is one."""
        if not self._calls:
            return False
        future, work = self._calls.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        return True

    def _take(self, turn: Turn) -> bool:
        try:
            return turn()
        except BaseException:  # engines answer for their steps: this is a bug outside of any, and others' work goes on
            log.exception("device `%s`: an engine's turn failed", self.name)
            return False
