"""The denoise stage with a sketch for a model: who steps with whom, what comes back, and how a request ends."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, aclosing
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from omnic.runtime import denoise
from omnic.runtime.denoise import Denoise
from omnic.runtime.diffusion import Ask, Job, Latents, Row
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Flow, Step
from omnic.runtime.making import Request
from tests.runtime.painting import EULER, Painted, Sketch, begun, loaded, paint, painted

Loader = Callable[..., tuple[Denoise, Sketch]]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Makes a stage, and the sketch it runs."""
    with ExitStack() as stack:

        def make(sketch: Sketch | None = None, **settings: Any) -> tuple[Denoise, Sketch]:
            sketch = sketch or Sketch()
            return stack.enter_context(loaded(sketch, monkeypatch, **settings)), sketch

        yield make


def gathered(*flows: Any) -> list[Any]:
    """All at once; what failed as its exception."""

    async def run() -> list[Any]:
        return await asyncio.gather(*map(painted, flows), return_exceptions=True)

    return asyncio.run(run())


def slowly(name: str, jobs: int) -> None:
    time.sleep(0.02)


# --- a picture --------------------------------------------------------------------------------------------------------


def test_a_picture_is_what_diffusers_scheduler_makes_of_the_predictions(load: Loader) -> None:
    import diffusers

    stage, _ = load()
    found = paint(stage, seed=3, side=8, steps=5, guidance=2.0, tone=0.5)
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_config(EULER)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / 5, 5))
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    for t in scheduler.timesteps:
        prompt, negative = ((x - tone) * (1 + t / 1000) / 2 for tone in (0.5, 0.0))
        x = scheduler.step(negative + 2.0 * (prompt - negative), t, x).prev_sample
    expected = x[0].clamp(-1, 1).add(1).mul(127.5).to(torch.uint8).permute(1, 2, 0).numpy()
    assert np.array_equal(found.image, expected)


def test_every_step_is_told(load: Loader) -> None:
    stage, _ = load(hook=slowly)
    found = paint(stage, steps=3)
    assert found.steps == [Step("paint", 1, 3), Step("paint", 2, 3), Step("paint", 3, 3)]


def test_the_report_says_how_long_it_took(load: Loader) -> None:
    stage, _ = load(hook=slowly)
    report = paint(stage, steps=3).finished.stages["paint"]
    assert report["steps"] == 3
    assert 0.06 <= report["busy_seconds"] <= report["seconds"] < 5


def test_a_step_of_scale_one_runs_the_prompt_alone(load: Loader) -> None:
    rows: list[int] = []

    def count(row: Row, prediction: Tensor) -> Tensor:
        rows.append(row.branch)
        return prediction

    stage, _ = load(Sketch(count))
    paint(stage, steps=2, guidance=1.0)
    assert rows == [0, 0]
    paint(stage, steps=2, guidance=1.5)
    assert rows[2:] == [0, 1, 0, 1]


# --- previews ---------------------------------------------------------------------------------------------------------


def test_previews_come_where_they_are_asked_for_spread_evenly(load: Loader) -> None:
    stage, _ = load(hook=slowly)
    found = paint(stage, previews=2, steps=9)
    assert [s.done for s in found.steps if s.preview is not None] == [3, 6]
    shown = next(s.preview for s in found.steps if s.done == 6)
    assert (shown.dtype, shown.shape) == (np.uint8, (4, 4, 3))
    assert not np.array_equal(shown, found.image)
    assert all(s.preview is None for s in paint(stage, steps=9).steps)


def test_more_previews_than_steps_are_one_a_step_but_the_last(load: Loader) -> None:
    stage, _ = load(hook=slowly)
    assert [s.preview is not None for s in paint(stage, previews=50, steps=4).steps] == [True, True, True, False]


def test_a_preview_that_nobody_has_seen_yet_is_not_lost_to_the_next_step(load: Loader) -> None:
    stage, _ = load()

    async def late() -> list[Step]:
        flow = begun(stage, previews=1, steps=20)
        found = []
        async with aclosing(aiter(flow)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, Step):
                    found.append(event)
                    time.sleep(0.05)  # the loop sleeps, steps go on
        return found

    steps = asyncio.run(late())
    assert len(steps) < 20
    assert sum(step.preview is not None for step in steps) == 1


def test_what_is_no_picture_is_not_shown(load: Loader) -> None:
    class Heard(Sketch):
        def finish(self, job: Job) -> dict[str, Any]:
            return {"latents": Latents(job.x[0][0])}

    stage, _ = load(Heard(), outputs=("latents",))

    async def made() -> list[Step]:
        flow = Flow(0)
        flow.previews = 3
        flow.output("image", stage.start(flow, tone=0.5, side=4, steps=4, guidance=2.0).latents)
        return [event async for event in flow if isinstance(event, Step)]

    assert all(step.preview is None for step in asyncio.run(made()))


# --- who steps with whom ----------------------------------------------------------------------------------------------


def test_in_step_mode_a_request_joins_those_under_way_and_leaves_them(load: Loader) -> None:
    stage, sketch = load(hook=slowly, dtype="bfloat16")

    async def run() -> list[Painted]:
        first = asyncio.create_task(painted(begun(stage, seed=1, steps=8)))
        await asyncio.sleep(0.07)
        return [await painted(begun(stage, seed=2, steps=2)), await first]

    asyncio.run(run())
    joined = [set(seeds) for seeds in sketch.forwards]
    assert joined[0] == {1}
    assert joined.count({1, 2}) == 2
    assert joined[-1] == {1}
    assert len(joined) == 8


def test_in_request_mode_a_batch_is_formed_once_and_nobody_joins_it(load: Loader) -> None:
    stage, sketch = load(hook=slowly, mode="request", dtype="bfloat16")

    async def run() -> None:
        first = [asyncio.create_task(painted(begun(stage, seed=seed, steps=4))) for seed in (1, 2)]
        await asyncio.sleep(0.03)
        await asyncio.gather(*first, painted(begun(stage, seed=3, steps=4)))

    asyncio.run(run())
    assert sorted(map(tuple, map(sorted, sketch.forwards))) == [(1, 2)] * 4 + [(3,)] * 4


def test_no_more_than_a_batch_share_a_forward_and_all_get_on(load: Loader) -> None:
    stage, sketch = load(slots=8, batch=3, dtype="bfloat16", hook=slowly)
    gathered(*(begun(stage, seed=seed, steps=4) for seed in range(8)))
    assert max(map(len, sketch.forwards)) == 3
    half = sketch.forwards[: len(sketch.forwards) // 2]
    assert set(range(8)) == {seed for seeds in half for seed in seeds}, "none waits for another's end"


def test_sizes_and_guidance_that_cannot_be_mixed_take_turns(load: Loader) -> None:
    stage, sketch = load(dtype="bfloat16", hook=slowly)
    gathered(begun(stage, seed=1, side=4, steps=6), begun(stage, seed=2, side=8, steps=6),
             begun(stage, seed=3, side=4, steps=6, guidance=1.0))  # fmt: skip
    assert all(len(seeds) == 1 for seeds in sketch.forwards)
    rounds = [tuple(seeds[0] for seeds in sketch.forwards[at : at + 3]) for at in range(0, 18, 3)]
    assert all(set(three) == {1, 2, 3} for three in rounds[:5])


def test_a_long_request_holds_no_short_one_of_another_size_up(load: Loader) -> None:
    stage, _ = load(hook=slowly)

    async def run() -> tuple[float, bool]:
        long = asyncio.create_task(painted(begun(stage, side=8, steps=100)))
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        await painted(begun(stage, side=4, steps=3))
        seconds, still = time.perf_counter() - began, not long.done()
        long.cancel()
        return seconds, still

    seconds, still = asyncio.run(run())
    assert still
    assert seconds < 1.0  # 6 turns of 20 ms, not 100


def test_those_past_the_slots_wait_in_line_in_the_order_they_came(load: Loader) -> None:
    stage, sketch = load(slots=2, batch=1, hook=slowly)

    async def run() -> None:
        flows = [asyncio.create_task(painted(begun(stage, seed=seed, steps=3))) for seed in range(5)]
        await asyncio.sleep(0.03)
        assert (stage.stats()["running"], stage.stats()["queue"]) == (2, 3)
        await asyncio.gather(*flows)

    asyncio.run(run())
    assert list(dict.fromkeys(seed for (seed,) in sketch.forwards)) == [0, 1, 2, 3, 4]


def test_phases_keep_apart_what_different_modules_step(load: Loader) -> None:
    class Experts(Sketch):
        def prepare(self, ask: Ask) -> Job:
            job = super().prepare(ask)
            job.phases = ["high"] * (job.steps // 2) + ["low"] * (job.steps - job.steps // 2)
            return job

        def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Any) -> tuple[Tensor, ...]:
            assert len({row.job.phases[row.job.step] for row in rows}) == 1
            return super().forward(x, t, rows)

    stage, sketch = load(Experts(), dtype="bfloat16", hook=slowly)

    async def run() -> list[Any]:
        first = asyncio.create_task(painted(begun(stage, seed=1, steps=8)))
        await asyncio.sleep(0.07)
        return [await painted(begun(stage, seed=2, steps=8)), await first]

    assert all(isinstance(found, Painted) for found in asyncio.run(run()))
    assert any(len(seeds) == 2 for seeds in sketch.forwards)


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_the_same_request_twice_and_after_others_gives_the_same_bytes(load: Loader) -> None:
    stage, _ = load()
    a, again = paint(stage, seed=7), paint(stage, seed=7)
    b = paint(stage, seed=8, steps=7, guidance=3.0, side=8)
    after = paint(stage, seed=7)
    assert a.image.tobytes() == again.image.tobytes() == after.image.tobytes()
    assert b.image.tobytes() == paint(load()[0], seed=8, steps=7, guidance=3.0, side=8).image.tobytes()


@pytest.mark.parametrize("mode", ["step", "request"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_neighbours_of_any_kind_change_no_bit(load: Loader, mode: str, dtype: str) -> None:
    stage, _ = load(mode=mode, dtype=dtype, slots=6, batch=3)
    choose = random.Random(5)
    asked = [
        {"seed": seed, "steps": choose.randint(1, 9), "guidance": choose.choice([1.0, 1.5, 4.0]),
         "side": choose.choice([2, 4, 8]), "tone": choose.uniform(-1, 1)}
        for seed in range(24)
    ]  # fmt: skip
    alone = [paint(stage, **one).image.tobytes() for one in asked]
    together = [found.image.tobytes() for found in gathered(*(begun(stage, **one) for one in asked))]
    assert together == alone
    assert stage.stats()["rows"] > stage.stats()["steps"], "some stepped together"


# --- how a request ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "field"), [({"side": 65}, "size"), ({"steps": 0}, "num_inference_steps")])
def test_what_cannot_be_had_is_said_before_any_work(load: Loader, given: dict[str, Any], field: str) -> None:
    stage, sketch = load()
    with pytest.raises(RequestError) as refused:
        paint(stage, **given)
    assert (refused.value.field, refused.value.status) == (field, 400)
    assert not sketch.forwards
    paint(stage)


def test_a_schedule_without_steps_is_refused_before_any_work(load: Loader) -> None:
    class Done(Sketch):
        def prepare(self, ask: Ask) -> Job:
            job = super().prepare(ask)
            job.schedules[0].timesteps = job.schedules[0].timesteps[:0]
            return job

    stage, sketch = load(Done())
    with pytest.raises(RequestError) as refused:
        paint(stage)
    assert refused.value.field == "num_inference_steps"
    assert not sketch.forwards


def at_step(step: int, seed: int, spoil: Callable[[Tensor], Tensor]) -> Callable[[Row, Tensor], Tensor]:
    """What a sketch does to the prompt's row of one request at one step, counted from 1."""

    def spoiled(row: Row, prediction: Tensor) -> Tensor:
        due = (row.job.step + 1, row.job.fixed["seed"], row.branch) == (step, seed, 0)
        return spoil(prediction) if due else prediction

    return spoiled


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_that_are_not_finite_are_a_failure_that_names_the_step(load: Loader, value: float, dtype: str) -> None:
    stage, _ = load(Sketch(at_step(3, 1, lambda p: p * value)), dtype=dtype)
    bad, good = gathered(begun(stage, seed=1, steps=5), begun(stage, seed=2, steps=5))
    assert isinstance(bad, StageFailed)
    assert str(bad) == "stage `paint` failed: step 3 of 5 gave numbers that are not finite"
    assert good.image.tobytes() == paint(stage, seed=2, steps=5).image.tobytes(), "its neighbour is unharmed"


def raising(error: BaseException) -> Callable[[Tensor], Tensor]:
    def spoil(prediction: Tensor) -> Tensor:
        raise type(error)(*error.args)

    return spoil


@pytest.mark.parametrize("error", [ValueError("out of paint"), SystemExit(3)])
def test_a_forward_that_raises_names_the_step_and_the_stage_goes_on(load: Loader, error: BaseException) -> None:
    stage, _ = load(Sketch(at_step(2, 1, raising(error))))
    bad, good = gathered(begun(stage, seed=1, steps=5), begun(stage, seed=2, steps=5))
    assert isinstance(bad, StageFailed)
    assert str(bad) == f"stage `paint` failed: {type(error).__name__}: {error} (step 2 of 5)"
    assert not bad.retryable
    assert isinstance(good, Painted)
    paint(stage, seed=1, steps=1)


def test_a_shared_forward_that_raises_fails_those_in_it_alone(load: Loader) -> None:
    stage, _ = load(Sketch(at_step(2, 1, raising(ValueError("out of paint")))), dtype="bfloat16", hook=slowly)
    found = gathered(*(begun(stage, seed=s, steps=5, side=side) for s, side in ((1, 4), (2, 4), (3, 8))))
    assert [type(f) for f in found] == [StageFailed, StageFailed, Painted]
    assert isinstance(paint(stage, seed=2), Painted)


def test_running_out_of_memory_may_be_tried_again(load: Loader) -> None:
    stage, _ = load(Sketch(at_step(1, 1, raising(MemoryError()))))
    (bad,) = gathered(begun(stage, seed=1))
    assert isinstance(bad, StageFailed)
    assert bad.retryable
    paint(stage, seed=2)


def test_what_fails_after_the_forward_fails_one_request(load: Loader) -> None:
    class Unfinished(Sketch):
        def finish(self, job: Job) -> Any:
            if job.fixed["seed"] == 1:
                raise ValueError("the frame broke")
            return super().finish(job)

    stage, _ = load(Unfinished(), dtype="bfloat16")
    bad, good = gathered(begun(stage, seed=1), begun(stage, seed=2))
    assert "the frame broke (step 4 of 4)" in str(bad)
    assert isinstance(good, Painted)


def test_preparing_that_raises_fails_one_request(load: Loader) -> None:
    class Unprepared(Sketch):
        def prepare(self, ask: Ask) -> Job:
            if ask.seed == 1:
                raise ValueError("no canvas")
            return super().prepare(ask)

    stage, _ = load(Unprepared())
    bad, good = gathered(begun(stage, seed=1), begun(stage, seed=2))
    assert str(bad) == "stage `paint` failed: ValueError: no canvas (before its first step)"
    assert isinstance(good, Painted)


def test_a_hook_may_fail_a_step(load: Loader) -> None:
    calls: list[tuple[str, int]] = []

    def hook(name: str, jobs: int) -> None:
        calls.append((name, jobs))
        if len(calls) == 3:
            raise RuntimeError("a fault")

    stage, _ = load(hook=hook)
    (bad,) = gathered(begun(stage, steps=4))
    assert str(bad) == "stage `paint` failed: RuntimeError: a fault (step 3 of 4)"
    assert calls == [("paint", 1)] * 3


# --- cancelling and closing -------------------------------------------------------------------------------------------


async def stopped_after(stage: Denoise, taken: int, **given: Any) -> None:
    """Cancels a request once so many steps were taken."""
    flow = begun(stage, **given)

    async def watch() -> None:
        async for event in flow:
            if isinstance(event, Step) and event.done >= taken:
                flow.cancel()

    with pytest.raises(Cancelled):
        await watch()
    assert flow.state == "cancelled"


def test_a_cancelled_request_stops_at_the_next_step(load: Loader) -> None:
    stage, sketch = load(hook=slowly)

    async def run() -> None:
        await stopped_after(stage, 2, steps=100)
        await asyncio.sleep(0.1)

    asyncio.run(run())
    assert 2 <= len(sketch.forwards) <= 4
    assert stage.stats()["running"] == 0


def test_one_that_waits_in_line_is_dropped_when_cancelled_and_never_runs(load: Loader) -> None:
    stage, sketch = load(slots=1, hook=slowly)

    async def run() -> None:
        first = asyncio.create_task(painted(begun(stage, seed=1, steps=5)))
        await asyncio.sleep(0.03)
        flow = begun(stage, seed=2)
        second = asyncio.create_task(painted(flow))
        await asyncio.sleep(0.01)
        flow.cancel()
        await first
        with pytest.raises(Cancelled):
            await second

    asyncio.run(run())
    assert {seed for seeds in sketch.forwards for seed in seeds} == {1}


def test_cancelling_touches_no_other_request(load: Loader) -> None:
    stage, _ = load(slots=4, batch=2, dtype="bfloat16")

    async def run() -> list[bytes]:
        choose = random.Random(1)
        kept = [begun(stage, seed=seed, steps=6) for seed in range(40)]
        dropped = [stopped_after(stage, choose.randint(1, 3), seed=100 + n, steps=50) for n in range(10)]
        found = await asyncio.gather(*map(painted, kept), *dropped)
        return [one.image.tobytes() for one in found[:40] if one is not None]

    together = asyncio.run(run())
    assert together == [paint(stage, seed=seed, steps=6).image.tobytes() for seed in range(40)]
    assert stage.stats()["running"] == stage.stats()["queue"] == 0


def test_what_a_request_held_is_free_once_it_has_ended_however_it_ended(
    load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denoise.log, "disabled", True)  # pytest keeps what is logged, and so the frames that raised
    held: list[weakref.ref[Any]] = []

    class Watched(Sketch):
        def prepare(self, ask: Ask) -> Job:
            job = super().prepare(ask)
            held.extend((weakref.ref(job.schedules[0]), weakref.ref(job.x[0])))
            return job

    spoil = at_step(2, 3, raising(ValueError("out of paint")))
    stage, _ = load(Watched(spoil), hook=slowly)

    async def run() -> None:
        await painted(begun(stage, seed=1))
        await stopped_after(stage, 1, seed=2, steps=50)
        with pytest.raises(StageFailed):
            await painted(begun(stage, seed=3))

    asyncio.run(run())
    time.sleep(0.05)
    gc.collect()
    assert len(held) == 6
    assert not any(ref() is not None for ref in held)


def test_a_loop_that_was_closed_harms_nobody(load: Loader) -> None:
    stage, sketch = load()
    loop = asyncio.new_event_loop()
    ask = Ask(1, {"tone": 0.5}, {"side": 4, "steps": 9, "guidance": 2.0})
    stage._waiting.append(Request(ask, loop, loop.create_future(), lambda done, total, preview: None, 0))
    loop.close()
    assert isinstance(paint(stage, seed=2), Painted)
    assert stage.stats()["running"] == 0
    assert [1] in sketch.forwards


def test_closing_ends_what_runs_and_what_waits_and_lets_go_of_the_model(load: Loader) -> None:
    stage, _ = load(slots=1, hook=slowly)

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(painted(begun(stage, seed=seed, steps=1000))) for seed in range(3)]
        await asyncio.sleep(0.05)
        began = time.perf_counter()
        await stage.close()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert time.perf_counter() - began < 1
        return found

    found = asyncio.run(run())
    assert [str(f) for f in found] == ["stage `paint` failed: its engine was closed"] * 3
    assert stage.stats()["running"] == stage.stats()["queue"] == 0
    (late,) = gathered(begun(stage))
    assert str(late) == "stage `paint` failed: its engine was closed"
    asyncio.run(stage.close())
    assert stage._denoiser is None
