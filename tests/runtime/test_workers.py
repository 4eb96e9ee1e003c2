"""The worker process and its supervisor: one end for every request, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.fake import Fault, Script, write
from omnic.runtime.flow import Finished, Piece
from omnic.runtime.process import Process
from omnic.runtime.workers import Call, Patience, State, Supervisor, WorkerFailed, WorkerLost
from tests.assistant import assistant

QUICK = Patience(beat=0.1, hung=1.0, hung_loading=5.0, backoff=(0.05, 0.1))
FAULTS = (
    Fault("think", 2, "raise", when="!raise"),
    Fault("think", 2, "memory", when="!memory"),
    Fault("think", 0, "request", when="!request"),
    Fault("think", 3, "exit", when="!exit"),
    Fault("think", 2, "hang", when="!hang"),
    Fault("speak", 1, "raise", when="!mute"),
)


def build(directory: Path, **script: Any) -> Path:
    return write(
        directory / "build", assistant(), Script(**{"log": str(directory / "log"), "faults": FAULTS, **script})
    )


@asynccontextmanager
async def supervised(path: Path, **options: Any) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(path, **{"patience": QUICK, **options})
    supervisor.start()
    try:
        await supervisor.ready()
        yield supervisor
    finally:
        await supervisor.stop()


def trial(path: Path, work: Callable[[Supervisor], Awaitable[None]], **options: Any) -> None:
    """Runs `work` against a loaded supervisor."""

    async def go() -> None:
        async with supervised(path, **options) as supervisor:
            await asyncio.wait_for(work(supervisor), 30)

    asyncio.run(go())


def chat(supervisor: Supervisor, text: str, seed: int = 0, **more: Any) -> Call:
    arguments = {"messages": [{"role": "user", "content": text}], "seed": seed, "max_tokens": 1024, **more}
    return supervisor.submit("chat_completions_reply", arguments)


async def said(call: Call) -> str:
    return "".join([event.value async for event in call if isinstance(event, Piece)])


def log_of(directory: Path) -> list[str]:
    file = directory / "log"
    return file.read_text().splitlines() if file.exists() else []


def words(count: int, mark: str = "word") -> str:
    return " ".join(f"{mark}{i}" for i in range(count))


# --- answers ----------------------------------------------------------------------------------------------------------


def test_a_request_gives_pieces_in_order_and_one_end(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        events = [event async for event in chat(supervisor, "one two three", seed=5)]
        assert [e.value for e in events[:-1] if isinstance(e, Piece)] == ["one", " two", " three"]
        finished = events[-1]
        assert isinstance(finished, Finished)
        assert (finished.seed, finished.completion_tokens) == (5, 3)

    trial(build(tmp_path), work)


def test_files_where_the_server_was_started_are_no_libraries_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "http.py").write_text("raise SystemExit(5)\n")
    monkeypatch.chdir(tmp_path)

    async def work(supervisor: Supervisor) -> None:
        assert await said(chat(supervisor, "one two")) == "one two"

    trial(build(tmp_path), work)


def test_sound_comes_as_arrays(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        call = supervisor.submit("audio_speech_speech", {"text": "abc"})
        pieces = [event.value async for event in call if isinstance(event, Piece)]
        assert [(p.dtype, p.shape) for p in pieces] == [(np.float32, (720,))]

    trial(build(tmp_path), work)


def test_requests_run_side_by_side(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        began = time.monotonic()
        answers = await asyncio.gather(*(said(chat(supervisor, words(10, f"{i}-"), i)) for i in range(20)))
        assert answers == [words(10, f"{i}-") for i in range(20)]
        assert time.monotonic() - began < 20 * 10 * 0.02 / 2

    trial(build(tmp_path, step_seconds=0.02), work)


def test_lists_that_the_pipeline_wants_as_tuples_are_tuples(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        assert '"stop": ["a"]' in await said(chat(supervisor, "!arguments", stop=("a",)))

    trial(build(tmp_path), work)


# --- faults of a request ----------------------------------------------------------------------------------------------

ERRORS = [
    ("!request", RequestError, "the prompt is too long"),
    ("!raise a b c", StageFailed, "stage `think` failed: the log of the server says why"),
    ("!memory a b c", StageFailed, "stage `think` failed: out of memory"),
]


@pytest.mark.parametrize(("text", "error", "message"), ERRORS)
def test_a_fault_ends_its_own_request(tmp_path: Path, text: str, error: type[Exception], message: str) -> None:
    async def work(supervisor: Supervisor) -> None:
        neighbour = asyncio.create_task(said(chat(supervisor, words(20))))
        with pytest.raises(error, match=message):
            await said(chat(supervisor, text))
        assert await neighbour == words(20)
        assert supervisor.restarts == 0

    trial(build(tmp_path, step_seconds=0.005), work)


def test_a_request_error_keeps_field_status_and_code(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        with pytest.raises(RequestError) as caught:
            await said(chat(supervisor, "!request"))
        error = caught.value
        assert (error.field, error.status, error.code) == ("messages", 400, "context_length_exceeded")

    trial(build(tmp_path), work)


def test_running_out_of_memory_is_retryable_and_a_bug_is_not(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        for text, retryable in (("!memory a b", True), ("!raise a b", False)):
            with pytest.raises(StageFailed) as caught:
                await said(chat(supervisor, text))
            assert caught.value.retryable is retryable

    trial(build(tmp_path), work)


def test_a_value_that_the_generated_code_refuses_is_the_requests_fault(tmp_path: Path) -> None:
    path = build(tmp_path)
    with (path / "pipeline.py").open("a") as file:
        file.write(
            "\n    def chat_completions_reply(self, *, max_tokens, **rest):\n"
            "        from omnic.contract.domains import Range\n\n"
            "        Range(1, 64).require('max_tokens', max_tokens)\n"
        )

    async def work(supervisor: Supervisor) -> None:
        with pytest.raises(RequestError, match=r"`max_tokens` must be in 1..64, not 1024"):
            await said(chat(supervisor, "hello"))

    trial(path, work)


# --- cancellation -----------------------------------------------------------------------------------------------------


def test_leaving_early_stops_at_the_next_step_and_touches_nothing_else(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        neighbour = asyncio.create_task(said(chat(supervisor, words(20), seed=2)))
        async with aclosing(aiter(chat(supervisor, words(1000), seed=1))) as events:
            async for event in events:
                if isinstance(event, Piece) and event.index == 4:
                    break
        assert await neighbour == words(20)
        steps = [line for line in log_of(tmp_path) if line.startswith("think 1 ")]
        assert 5 <= len(steps) <= 8

    trial(build(tmp_path, step_seconds=0.01), work)


def test_cancel_ends_the_iteration_and_says_when_it_is_over(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        call, over = chat(supervisor, words(1000)), asyncio.Event()
        call.when_over(over.set)
        asyncio.get_running_loop().call_later(0.1, call.cancel)
        with pytest.raises(Cancelled):
            await said(call)
        await asyncio.wait_for(over.wait(), 1)
        assert (await supervisor.stats())["think"]["running"] == 0
        call.cancel()  # nothing left to do

    trial(build(tmp_path, step_seconds=0.01), work)


def test_requests_cancelled_before_they_began_end_too(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        calls = [chat(supervisor, words(1000), seed) for seed in range(50)]
        for call in calls:
            call.cancel()  # both orders lie in the socket before the worker reads the first
        ends = await asyncio.gather(*map(said, calls), return_exceptions=True)
        assert {type(end) for end in ends} == {Cancelled}
        assert supervisor.running == 0

    trial(build(tmp_path, step_seconds=0.01), work)


def test_after_many_aborts_requests_still_complete(tmp_path: Path) -> None:
    async def one(supervisor: Supervisor, number: int) -> str:
        text = words(8, f"{number}-")
        if number % 5:
            return await said(chat(supervisor, text, number))
        async with aclosing(aiter(chat(supervisor, text, number))) as events:
            async for event in events:
                if isinstance(event, Piece) and event.index == number % 7:
                    break
        return text

    async def work(supervisor: Supervisor) -> None:
        answers = await asyncio.gather(*(one(supervisor, n) for n in range(200)))
        assert answers == [words(8, f"{n}-") for n in range(200)]
        for n in range(20):
            assert await said(chat(supervisor, f"clean {n}")) == f"clean {n}"
        assert supervisor.running == 0

    trial(build(tmp_path, step_seconds=0.001), work)


# --- flow control -----------------------------------------------------------------------------------------------------


def test_a_slow_consumer_holds_its_producer_back(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        async with aclosing(aiter(chat(supervisor, words(1000), seed=1))) as events:
            await anext(events)
            await asyncio.sleep(0.5)  # time for all thousand
            assert len(log_of(tmp_path)) < 4 + 64 + 8  # credit, the flow's own window, and what is under way
            assert await said(chat(supervisor, "someone else")) == "someone else"
            rest = [event.value async for event in events if isinstance(event, Piece)]
        assert len(rest) == 999

    trial(build(tmp_path), work, credit=4)


# --- the process ------------------------------------------------------------------------------------------------------


def test_loading_is_reported(tmp_path: Path) -> None:
    async def go() -> None:
        supervisor = Supervisor(build(tmp_path, load_seconds=0.3), patience=QUICK)
        supervisor.start()
        seen = []
        while supervisor.state is State.loading:
            seen.append(supervisor.loading.get("think"))
            await asyncio.sleep(0.02)
        assert (40, 100) in seen
        assert supervisor.state is State.ready
        await supervisor.stop()

    asyncio.run(go())


def test_nothing_is_taken_before_it_is_ready(tmp_path: Path) -> None:
    async def go() -> None:
        supervisor = Supervisor(build(tmp_path), patience=QUICK)
        supervisor.start()
        with pytest.raises(WorkerLost, match="the pipeline is loading"):
            chat(supervisor, "hello")
        await supervisor.stop()

    asyncio.run(go())


@pytest.mark.parametrize("how", ["kill", "exit", "hang"])
def test_a_worker_that_dies_or_hangs_fails_its_requests_soon_and_is_replaced(tmp_path: Path, how: str) -> None:
    async def work(supervisor: Supervisor) -> None:
        pid = supervisor.pid
        assert pid is not None
        victims = [asyncio.create_task(said(chat(supervisor, words(1000)))) for _ in range(3)]
        if how == "kill":
            await asyncio.sleep(0.1)
            os.kill(pid, signal.SIGKILL)
        else:
            victims.append(asyncio.create_task(said(chat(supervisor, f"!{how} a b c d e"))))
        began = time.monotonic()
        ends = await asyncio.gather(*victims, return_exceptions=True)
        assert time.monotonic() - began < 5
        assert all(isinstance(end, WorkerLost) for end in ends)
        assert supervisor.state is State.restarting
        await supervisor.ready()
        assert await said(chat(supervisor, "back again")) == "back again"
        assert (supervisor.restarts, supervisor.pid == pid, psutil.pid_exists(pid)) == (1, False, False)

    trial(build(tmp_path, step_seconds=0.01), work)


def test_deaths_with_an_answer_between_them_are_not_in_a_row(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        for n in range(4):
            assert await said(chat(supervisor, "fine")) == "fine"
            with pytest.raises(WorkerLost):
                await said(chat(supervisor, "!exit a b c d"))
            await supervisor.ready()
            assert supervisor.restarts == n + 1

    trial(build(tmp_path), work)


def test_what_stages_counted_outlives_the_worker(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        await said(chat(supervisor, "one"))
        assert (await supervisor.stats())["think"]["requests"] == 1
        with pytest.raises(WorkerLost):
            await said(chat(supervisor, "!exit a b c d"))
        await supervisor.ready()
        await said(chat(supervisor, "two"))
        counted = (await supervisor.stats())["think"]
        assert counted["requests"] >= 2
        assert counted["running"] == 0

    trial(build(tmp_path), work)


def failure(path: Path, **options: Any) -> tuple[WorkerFailed, Supervisor]:
    told: list[WorkerFailed] = []

    async def go() -> Supervisor:
        supervisor = Supervisor(path, **{"patience": QUICK, "on_failure": told.append, **options})
        supervisor.start()
        with pytest.raises(WorkerFailed):
            await asyncio.wait_for(supervisor.ready(), 20)
        await supervisor.stop()
        return supervisor

    supervisor = asyncio.run(go())
    assert len(told) == 1
    return told[0], supervisor


def test_missing_weights_are_one_line_and_no_second_try(tmp_path: Path) -> None:
    failed, supervisor = failure(build(tmp_path, load_failure="missing"))
    assert (str(failed), failed.output) == ("model of `think` is not here: pip install it", ())
    assert supervisor.restarts == 0


def test_three_failures_in_a_row_are_the_end_and_the_last_lines_are_kept(tmp_path: Path) -> None:
    failed, supervisor = failure(build(tmp_path, load_failure="raise"))
    assert str(failed) == "ValueError: `think` does not load"
    assert failed.output[0].startswith("Traceback")
    assert failed.output[-1] == "ValueError: `think` does not load"
    assert supervisor.restarts == 2


def test_a_worker_that_ends_while_it_loads_says_how(tmp_path: Path) -> None:
    failed, _ = failure(build(tmp_path, load_failure="exit"))
    assert str(failed) == "the worker process ended with status 3 while it loaded"


def test_a_worker_that_gets_nowhere_with_loading_is_given_up(tmp_path: Path) -> None:
    failed, _ = failure(build(tmp_path, load_seconds=60), patience=replace(QUICK, stuck=0.5, backoff=()))
    assert str(failed) == "the worker process made no progress with loading for 0.5 s and was killed"


NOT_BUILDS = {
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "no pipeline": lambda path: (path / "pipeline.py").unlink(),
    "a damaged manifest": lambda path: (path / "manifest.json").write_text("{"),
    "a module that does not import": lambda path: (path / "pipeline.py").write_text("import nowhere_to_be_found\n"),
}


@pytest.mark.parametrize("case", NOT_BUILDS)
def test_what_is_no_build_is_one_line_and_no_second_try(tmp_path: Path, case: str) -> None:
    path = build(tmp_path)
    NOT_BUILDS[case](path)
    failed, supervisor = failure(path)
    assert "\n" not in str(failed)
    assert (failed.output, supervisor.restarts) == ((), 0)


def test_a_python_that_is_not_there_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    failed, _ = failure(build(tmp_path), python=str(tmp_path / "python"))
    assert "cannot start a worker process" in str(failed)


def test_a_fault_in_supervision_is_the_end_and_not_a_server_without_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(process: Process, patience: Patience) -> str:
        raise LookupError("a bug")

    monkeypatch.setattr(Process, "run", run)
    failed, supervisor = failure(build(tmp_path))
    assert str(failed) == "supervision failed: LookupError: a bug"
    assert supervisor.pid is None or not psutil.pid_exists(supervisor.pid)


def test_stop_leaves_no_process(tmp_path: Path) -> None:
    async def go() -> int:
        async with supervised(build(tmp_path, step_seconds=0.05)) as supervisor:
            running = asyncio.create_task(said(chat(supervisor, words(1000))))
            await asyncio.sleep(0.1)
            pid = supervisor.pid
            assert pid is not None
        with pytest.raises(WorkerLost):
            await running
        return pid

    assert not psutil.pid_exists(asyncio.run(go()))


def test_the_terminal_s_signals_are_left_to_the_server(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor) -> None:
        assert supervisor.pid is not None
        call = asyncio.create_task(said(chat(supervisor, words(20))))
        for each in (signal.SIGINT, signal.SIGTERM):
            await asyncio.sleep(0.02)
            os.kill(supervisor.pid, each)
        assert await call == words(20)

    trial(build(tmp_path, step_seconds=0.01), work)


PARENT = """
import asyncio, sys
from pathlib import Path
from omnic.runtime.workers import Supervisor

async def go():
    supervisor = Supervisor(Path(sys.argv[1]))
    supervisor.start()
    if sys.argv[2] == "ready":
        await supervisor.ready()
    while supervisor.pid is None or (sys.argv[2] == "loading" and not supervisor.loading):
        await asyncio.sleep(0.01)
    print(supervisor.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(go())
"""


@pytest.fixture
def parent() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(path: Path, until: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PARENT, str(path), until]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("until", ["ready", "loading"])
def test_a_worker_dies_with_its_parent_also_while_it_loads(
    tmp_path: Path, until: str, parent: Callable[..., subprocess.Popen[str]]
) -> None:
    process = parent(build(tmp_path, load_seconds=0 if until == "ready" else 60), until)
    assert process.stdout is not None
    worker = psutil.Process(int(process.stdout.readline()))
    process.kill()
    worker.wait(timeout=3)
