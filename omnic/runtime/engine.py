"""What runs a language model: takes requests, steps the scheduler, gives tokens back to event loops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

from omnic.runtime.answer import Delivery, Request, deliver
from omnic.runtime.device import Device
from omnic.runtime.errors import StageFailed
from omnic.runtime.generate_steps import Hook, Launched, Step, Steps
from omnic.runtime.scheduler import Scheduler, Work
from omnic.runtime.scheduler import Sequence as Scheduled
from omnic.runtime.threads import warn_of_spinning

log = logging.getLogger("omnic.generate")


class Engine:
    """Runs requests on a loaded model, all of them together, in turns of its device.

    Where steps run apart from this thread, the next is launched before the last is read; what it computes for a request
    that turns out to have ended is dropped. What fails in a step fails the requests of that step; the others go on.
    Stops for good only on `close`, or on an exception that is no Exception (a SystemExit): then all requests fail, and
    new ones are refused.
    """

    def __init__(
        self, name: str, load: Callable[[], Steps], device: Device, *, slots: int, prefill_chunk: int, steady: bool,
        hook: Hook | None = None,
    ) -> None:  # fmt: skip
        """`load` runs on the device's thread, where the model will. `steady`: prompts are always cut at multiples of
        `prefill_chunk` (see Scheduler)."""
        self.name, self._load, self._hook = name, load, hook
        self._device, self._slots, self._chunk, self._steady = device, slots, prefill_chunk, steady
        self._flights: deque[Launched] = deque()
        self._ended_at = 0.0  # the last step that was read
        self._requests: dict[Scheduled, Request] = {}  # waiting or running
        self._inbox: deque[Request] = deque()  # new, or cancelled
        self._closing = False
        self._dead: BaseException | None = None
        self._scheduler = Scheduler(slots, prefill_chunk, steady=steady)
        self.steps: Steps  # once `start` has returned
        self._counts = dict.fromkeys(
            ("requests", "prompt_tokens", "completion_tokens", "steps", "rows", "busy_seconds",
             "queue_seconds", "first_tokens", "first_token_seconds"), 0.0
        )  # fmt: skip

    # --- any thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the model is loaded and has run once. Raises what that raised."""
        warn_of_spinning()
        self._device.submit(self._begin).result()
        self._device.attend(self._turn)

    def submit(self, request: Request) -> None:
        """Puts a request in line. Raises StageFailed if the engine no longer runs."""
        request.queued_at = time.monotonic()
        self._inbox.append(request)
        self._device.wake()
        if self._dead is not None or self._closing:  # looked at last, as the engine's end looks at the inbox last
            raise StageFailed(self.name, f"its engine {f'died: {self._dead!r}' if self._dead else 'was closed'}")

    def cancel(self, request: Request) -> None:
        """Lets go of a request at the next step. Does nothing if it has ended."""
        request.cancelled = True
        self._inbox.append(request)
        self._device.wake()

    def wake(self) -> None:
        """A reader may have room again."""
        self._device.wake()

    def close(self) -> None:
        """Fails what is still running, and takes no more turns."""
        self._closing = True
        self._device.leave(self._turn)
        try:
            self._device.submit(self._end).result()
        except RuntimeError:  # the device was closed, and nothing runs there any more
            self._end()

    def stats(self) -> dict[str, float]:
        """`rows` counts the sequences that ran, over all steps: by `steps`, the mean batch size."""
        return (
            self._counts
            | self.steps.stats()
            | {
                "queue": len(self._scheduler.waiting) + len(self._inbox),
                "running": len(self._scheduler.running),
                "slots": self._slots,
            }
        )

    # --- the device's thread ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.steps = self._load()
        self._scheduler = self._new_scheduler()
        self._warm_up()

    def _turn(self) -> bool:
        """One step; whether there was one to take."""
        try:
            return self._run()
        except Exception as error:  # a bug outside of any step
            log.exception("stage `%s`: the engine lost its requests", self.name)
            self._flights.clear()
            self._fail(list(self._requests.values()), error)
            self._scheduler = self._new_scheduler()
            return True
        except BaseException as error:
            log.critical("stage `%s`: the engine died", self.name, exc_info=True)
            self._dead = error
            self._device.leave(self._turn)
            self._end()
            return False

    def _end(self) -> None:
        reason = self._dead or RuntimeError("the engine was closed")
        self._turn_inbox()
        self._fail(list(self._requests.values()), reason)

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self._slots, self._chunk, steady=self._steady, least=self.steps.least)

    def _warm_up(self) -> None:
        """Runs a few steps of the shapes to come: loads kernels, wakes threads, and sets the pace of prompts."""
        chunk = self.steps.prepare(self._chunk)
        for _ in range(3):
            began = time.perf_counter()
            self.steps.trial(1)
            single = time.perf_counter() - began
            began = time.perf_counter()
            self.steps.trial(chunk)
            several = time.perf_counter() - began
        self._scheduler.pace.took(0, 1, single)
        self._scheduler.pace.took(chunk, 0, several)

    def _run(self) -> bool:
        self._turn_inbox()
        work = self._scheduler.plan(lambda scheduled: self._requests[scheduled].ready)
        if work:
            self._launch(work)
        if self._flights and len(self._flights) > (self.steps.lag if work else 0):
            self._land(self._flights.popleft())
            return True
        return bool(work)

    def _launch(self, work: tuple[Work, ...]) -> None:
        began = time.perf_counter()
        requests = [self._requests[w.sequence] for w in work]
        self._counts["steps"] += 1
        self._counts["rows"] += len(work)
        try:
            if self._hook:
                self._hook(Step(int(self._counts["steps"]), work))
            for request, item in zip(requests, work, strict=True):
                if item.start == 0:
                    request.began_at = time.monotonic()
                    self._counts["queue_seconds"] += request.began_at - request.queued_at
            flight = self.steps.launch(list(zip(requests, work, strict=True)))
        except Exception as error:
            self._counts["busy_seconds"] += time.perf_counter() - began
            log.exception("stage `%s`: a step failed", self.name)
            self._fail(requests, error)
            return
        drawing = tuple(request for request, item in zip(requests, work, strict=True) if item.samples)
        for request in drawing:
            request.flying += 1
        self._scheduler.launched(work)
        self._flights.append(Launched(work, drawing, began, flight))

    def _land(self, step: Launched) -> None:
        """Reads a step's tokens, and gives them to those who still want them."""
        for request in step.drawing:
            request.flying -= 1
        wanting = [self._requests.get(request.scheduled) is request for request in step.drawing]
        try:
            tokens = step.flight.tokens()
            deliveries = [
                self._unsound(request) if token is None else self._drawn(request, token)
                for request, token, wants in zip(step.drawing, tokens, wanting, strict=True)
                if wants
            ]
        except Exception as error:
            log.exception("stage `%s`: a step failed", self.name)
            # also one that this step ended, of which nobody has heard
            self._fail([request for request, wants in zip(step.drawing, wanting, strict=True) if wants], error)
            return
        finally:
            now = time.perf_counter()
            seconds = now - max(step.began, self._ended_at)
            self._counts["busy_seconds"] += seconds
            self._ended_at = now
        self._scheduler.took(step.work, seconds)
        self._post(deliveries)

    def _turn_inbox(self) -> None:
        while self._inbox:
            request = self._inbox.popleft()
            if request.cancelled:
                self._forget(request)
            else:
                self._requests[request.scheduled] = request
                self._scheduler.add(request.scheduled)

    def _drawn(self, request: Request, token: int) -> Delivery:
        now = time.monotonic()
        if not request.answer:
            request.first_token_at = now
            self._counts["first_tokens"] += 1
            self._counts["first_token_seconds"] += now - request.queued_at
            self._counts["prompt_tokens"] += len(request.prompt)
        delivery = request.take(token)
        self._counts["completion_tokens"] += 1
        if delivery.end is not None:
            request.ended_at = now
            self._counts["requests"] += 1
            self._forget(request)
        return delivery

    def _unsound(self, request: Request) -> Delivery:
        self._forget(request)
        return Delivery(request, "", None, StageFailed(self.name, "the model gave logits that are not numbers"))

    def _forget(self, request: Request) -> None:
        self._requests.pop(request.scheduled, None)
        self._scheduler.remove(request.scheduled)

    def _fail(self, requests: Sequence[Request], error: BaseException) -> None:
        failure = StageFailed.because(self.name, error)
        for request in requests:
            self._forget(request)
        self._post([Delivery(request, "", None, failure) for request in requests])

    def _post(self, deliveries: Sequence[Delivery]) -> None:
        """Hands deliveries to their event loops, all of one loop at once."""
        by_loop: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
        for delivery in deliveries:
            delivery.request.posted += 1
            by_loop.setdefault(delivery.request.loop, []).append(delivery)
        for loop, mine in by_loop.items():
            try:
                loop.call_soon_threadsafe(self._deliver, mine)
            except RuntimeError:  # the loop is closed, and its requests with it
                for delivery in mine:
                    self._forget(delivery.request)

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        """On the event loop. What is delivered no longer uses credit, so its requests may be ready again: an edge that
        gathers text before it gives any has no reader yet who would say so."""
        deliver(deliveries)
        self._device.wake()
