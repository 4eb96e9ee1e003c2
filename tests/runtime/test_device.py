"""A device's thread: calls in line, engines in turn, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future

import pytest
import torch

from omnic.runtime.device import Device


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device("cpu", threads=1)
    yield device
    device.close()


def test_calls_run_one_after_the_other_on_one_thread_in_inference_mode(device: Device) -> None:
    def where() -> tuple[str, bool, int]:
        return threading.current_thread().name, torch.is_inference_mode_enabled(), torch.get_num_threads()

    found = {device.submit(where).result() for _ in range(5)}
    assert found == {("omnic cpu", True, 1)}


def test_many_threads_may_be_the_first_to_ask(device: Device) -> None:
    names: list[str] = []
    gate = threading.Barrier(8)

    def ask() -> None:
        gate.wait()
        names.append(device.submit(lambda: str(threading.get_ident())).result())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 8
    assert len(set(names)) == 1


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
def test_what_a_call_raises_reaches_its_caller_and_harms_nobody_else(device: Device, error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        device.submit(fail).result()
    assert device.submit(lambda: 1).result() == 1


def test_engines_and_calls_take_turns(device: Device) -> None:
    """What one of them has in line makes another wait for one step of it, not for all of it."""
    order: list[str] = []
    left = {"a": 3, "b": 3}

    def turn(name: str) -> bool:
        if left[name]:
            left[name] -= 1
            order.append(name)
            return True
        return False

    held = threading.Event()
    device.submit(held.wait)
    device.attend(lambda: turn("a"))
    device.attend(lambda: turn("b"))
    calls = [device.submit(lambda: order.append("call")) for _ in range(3)]
    held.set()
    for call in calls:
        call.result()
    assert order == ["a", "b", "call", "a", "b", "call", "a", "b", "call"]


def test_an_idle_engine_is_asked_again_on_every_wake_and_not_between(device: Device) -> None:
    turns: list[float] = []
    device.submit(lambda: None).result()

    def turn() -> bool:
        turns.append(time.monotonic())
        return False

    device.attend(turn)
    time.sleep(0.1)
    idle = len(turns)
    assert 1 <= idle <= 3
    device.wake()
    time.sleep(0.05)
    assert len(turns) == idle + 1


def test_an_engine_that_left_is_asked_no_more(device: Device) -> None:
    turns: list[int] = []

    def turn() -> bool:
        turns.append(1)
        return False

    device.attend(turn)
    device.submit(lambda: None).result()
    device.leave(turn)
    device.leave(turn)
    device.submit(lambda: None).result()
    count = len(turns)
    device.wake()
    device.submit(lambda: None).result()
    assert len(turns) == count


@pytest.mark.parametrize("error", [ValueError("a bug"), SystemExit(3)])
def test_an_engine_whose_turn_fails_does_not_end_the_thread(
    device: Device, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def turn() -> bool:
        raise error

    device.attend(turn)
    assert [device.submit(lambda: 1).result() for _ in range(2)] == [1, 1]
    device.leave(turn)
    assert "device `cpu`: an engine's turn failed" in caplog.text


def test_a_call_that_was_cancelled_before_its_turn_is_passed_over(device: Device) -> None:
    held = threading.Event()
    ran: list[int] = []
    device.submit(held.wait)

    async def give_up() -> None:
        task = asyncio.create_task(device.run(lambda: ran.append(1)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    held.set()
    device.submit(lambda: None).result()
    assert not ran


def test_closing_ends_the_thread_after_its_call_and_cancels_the_rest() -> None:
    device = Device("cpu", threads=1)
    begun, done = threading.Event(), []

    def work() -> None:
        begun.set()
        time.sleep(0.1)
        done.append(1)

    device.submit(work)
    waiting: Future[None] = device.submit(lambda: None)
    begun.wait()
    device.close()
    assert done == [1]
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(RuntimeError, match="device `cpu` was closed"):
        device.submit(lambda: None)
    device.close()


def test_a_device_that_was_never_used_has_no_thread() -> None:
    device = Device("cpu")
    device.close()
    assert device._thread is None
