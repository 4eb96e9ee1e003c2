"""Stages that work in pieces: what comes over an edge cut into chunks, and long work in parts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.chunks import Chunks
from omnic.runtime.device import Device
from omnic.runtime.diffusion import Ask, Latents
from omnic.runtime.edges import Port
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Flow, Piece
from omnic.runtime.forward import Forward
from omnic.runtime.weights import Checkpoint


class Sum:
    """Satisfies `diffusion.Streamed`: gives, for each frame, the sum so far. State is a request's own."""

    streams = "latents"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gate = threading.Semaphore(1000)

    def run(self, ask: Ask) -> Iterator[Mapping[str, Any]]:
        push = self.begin(ask)
        found = []
        for frame in ask.inputs["latents"].values.split(1, 2):
            found.append(push(Latents(frame))["video"])
            yield {}
        yield {"video": torch.cat(found).numpy()}

    def begin(self, ask: Ask) -> Callable[[Any], Mapping[str, Any]]:
        total = torch.zeros(1)

        def push(piece: Latents) -> Mapping[str, Any]:
            self.gate.acquire()
            self.calls.append(f"{ask.settings['name']}{piece.values.shape[2]}")
            if bool(piece.values.isnan().any()):
                raise RequestError("not a number", "prompt")
            if float(piece.values.min()) < 0:
                raise ValueError("less than nothing")
            total.add_(piece.values.sum())
            return {"video": total.clone()}

        return push


@contextmanager
def loaded(monkeypatch: pytest.MonkeyPatch, made: Any) -> Iterator[tuple[Forward, Device]]:
    monkeypatch.setattr(families, "load", lambda family: SimpleNamespace(load=lambda *_: made))
    device = Device("cpu", threads=1)
    stage = Forward(
        "paint", Checkpoint(Model("m", "random", "sum", "sum", "random", {}), None), device, part="vae_decode",
        dtype="float32", inputs=("latents",), outputs=("video",),
    )  # fmt: skip
    stage.load(lambda name, done, total: None)
    yield stage, device
    asyncio.run(stage.close())
    device.close()


def begun(stage: Forward, values: list[float], size: int | None, name: str = "a", window: int = 4) -> Flow:
    """A flow whose latents, a number a frame, all come at once, cut into chunks of `size`."""
    flow, port = Flow(0), Port()
    edge = port.channel(window, segmenter=Chunks(size) if size else None)
    port.send(Latents(torch.tensor(values).reshape(1, 1, -1, 1, 1)))
    port.close()
    flow.output("video", stage.start(flow, latents=edge, name=name).video, window=window)
    return flow


async def pieces(flow: Flow) -> list[list[float]]:
    return [event.value.tolist() async for event in flow if isinstance(event, Piece)]


def test_each_chunk_is_a_call_and_comes_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = Sum()
    with loaded(monkeypatch, transform) as (stage, _):
        assert asyncio.run(pieces(begun(stage, [1, 2, 3, 4, 5], 2))) == [[3], [10], [15]]
        assert transform.calls == ["a2", "a2", "a1"]
        assert asyncio.run(pieces(begun(stage, [1, 2, 3], None))) == [[1, 3, 6]]
        assert stage.stats()["requests"] == 2


def test_a_piece_is_out_before_the_next_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = Sum()
    transform.gate = threading.Semaphore(1)

    async def run(stage: Forward) -> list[float]:
        heard = []
        async for event in begun(stage, [1, 2, 3], 1):
            if isinstance(event, Piece):
                heard.append(float(event.value))
                assert len(transform.calls) == len(heard)
                transform.gate.release()
        return heard

    with loaded(monkeypatch, transform) as (stage, _):
        assert asyncio.run(run(stage)) == [1, 3, 6]


def test_requests_take_turns_and_other_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = Sum()

    async def run(stage: Forward, device: Device) -> None:
        transform.gate = threading.Semaphore(0)
        flows = [begun(stage, [1] * 3, size, name) for name, size in (("a", 1), ("b", 1), ("c", None))]
        tasks = [asyncio.create_task(pieces(flow)) for flow in flows]
        while len(device._calls) < 2:
            await asyncio.sleep(0.001)
        other = device.submit(lambda: transform.calls.append("other"))
        for _ in range(9):
            transform.gate.release()
        assert await asyncio.gather(*tasks) == [[[1], [2], [3]], [[1], [2], [3]], [[1, 2, 3]]]
        assert other.done()

    with loaded(monkeypatch, transform) as (stage, device):
        asyncio.run(run(stage, device))
    assert transform.calls.index("other") < len(transform.calls) - 3
    order = "".join(call[0] for call in transform.calls if call != "other")
    assert "aaa" not in order
    assert "ccc" not in order


def test_a_request_that_is_cancelled_stops_at_its_next_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = Sum()
    transform.gate = threading.Semaphore(2)

    async def second(flow: Flow) -> None:
        async for event in flow:
            if isinstance(event, Piece) and event.index == 1:
                flow.cancel()

    async def run(stage: Forward) -> None:
        with pytest.raises(Cancelled):
            await second(begun(stage, [1] * 100, 1))
        for _ in range(200):
            transform.gate.release()
        assert await pieces(begun(stage, [5], 1, "b")) == [[5]]

    with loaded(monkeypatch, transform) as (stage, _):
        asyncio.run(run(stage))
    assert sum(call == "a1" for call in transform.calls) <= 3


def test_no_more_is_made_than_readers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = Sum()

    async def run(stage: Forward) -> None:
        heard = 0
        async for event in begun(stage, [1] * 20, 1, window=2):
            if isinstance(event, Piece):
                heard += 1
                await asyncio.sleep(0.002)
                assert len(transform.calls) <= heard + 3

    with loaded(monkeypatch, transform) as (stage, _):
        asyncio.run(run(stage))
    assert len(transform.calls) == 20


def test_what_fails_in_a_piece_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    with loaded(monkeypatch, Sum()) as (stage, _):
        with pytest.raises(RequestError, match="not a number"):
            asyncio.run(pieces(begun(stage, [1, float("nan")], 1)))
        with pytest.raises(StageFailed, match="less than nothing"):
            asyncio.run(pieces(begun(stage, [1, -1], None)))
        assert asyncio.run(pieces(begun(stage, [2], 1))) == [[2]]


def test_chunks_do_not_depend_on_how_latents_come() -> None:
    whole = torch.arange(11.0).reshape(1, 1, 11, 1, 1)
    for sizes in ((11,), (1,) * 11, (4, 3, 4), (2, 9)):
        cut = Chunks(3, first=(1, 2))
        found = [piece for part in whole.split(list(sizes), 2) for piece in cut.push(Latents(part))]
        found += cut.flush()
        assert [piece.values.flatten().tolist() for piece in found] == [[0], [1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
