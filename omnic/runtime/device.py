"""The thread that does a device's work, for all stages placed there."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("omnic.device")


class Device:
    """Runs calls one after the other, and between them the turns of engines, so that none waits for another's whole
    work. One thread a device: OpenMP keeps a team of threads for each thread that uses torch, and two teams hinder
    each other.

    `threads` is torch's share of the processor; 0 is all that this process may use.
    """

    def __init__(self, name: str = "cpu", threads: int = 0) -> None:
        self.name = name
        self._cores = threads or len(os.sched_getaffinity(0))
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._turns: tuple[Callable[[], bool], ...] = ()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    # --- any thread ------------------------------------------------------------------------------------------------

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Puts `work` in line; cancelled before its turn, it is passed over."""
        if self._closing:
            raise RuntimeError(f"device `{self.name}` was closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._main, name=f"omnic {self.name}", daemon=True)
            self._thread.start()
        future: Future[T] = Future()
        self._calls.append((future, work))
        self._wake.set()
        return future

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, from the event loop. Cancelled, work that has begun still ends, and is forgotten."""
        return await asyncio.wrap_future(self.submit(work))

    def attend(self, turn: Callable[[], bool]) -> None:
        """Calls `turn` again and again, in turn with others, while it returns True; after that on every `wake`."""
        self._turns = (*self._turns, turn)
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """Ends the thread after the call it is at. Calls still in line are cancelled."""
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
        with torch.inference_mode():
            while not self._closing:
                self._wake.clear()
                busy = self._call()
                for turn in self._turns:
                    busy |= self._turn(turn)
                if not busy:
                    self._wake.wait()

    def _call(self) -> bool:
        if not self._calls:
            return False
        future, work = self._calls.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        return True

    def _turn(self, turn: Callable[[], bool]) -> bool:
        try:
            return turn()
        except Exception:  # engines answer for their steps; this is a bug outside of any
            log.exception("device `%s`: an engine's turn failed", self.name)
            return False
