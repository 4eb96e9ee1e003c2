"""The generate stage with the steps of a GPU. On a GPU all is as in use; on a CPU graphs are called as they are, and
the model is that of the CPU, as Triton's interpreter takes seconds for a step of it (test_llama_gpu.py runs some).
Tiny models with random weights, float32."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from omnic.runtime.answer import Draw
from omnic.runtime.device import Device
from omnic.runtime.errors import Elsewhere, StageFailed
from omnic.runtime.families import llama
from omnic.runtime.flow import Flow, Piece
from omnic.runtime.generate import Generate
from omnic.runtime.generate_gpu import GpuSteps, Kind, buckets
from omnic.runtime.generate_prompts import packed
from omnic.runtime.generate_steps import Steps
from omnic.runtime.graphs import Graphs
from omnic.runtime.home import Home
from omnic.runtime.kernels.prefill_attention import BLOCK
from omnic.runtime.kernels.sample import State
from omnic.runtime.language import Span
from omnic.runtime.tensors import Loaded
from tests.runtime.talking import PARROT, SETTINGS, Parrot, ask, loaded, parrot, said, sample, tiny

__all__ = ["parrot"]  # a fixture

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
DEVICES = ["cpu", pytest.param("gpu0", marks=[pytest.mark.gpu, GPU])]
ASKED: list[dict[str, Any]] = [
    {"text": "why is the sky blue", "seed": 1, "max_tokens": 12},
    {"text": "why is the sky blue", "seed": 2, "temperature": 1.0, "max_tokens": 9},
    {"text": "name three colours", "seed": 3, "temperature": 0.8, "top_k": 40, "max_tokens": 5},
    {"text": "x", "seed": 2**70, "temperature": 1.3, "top_p": 0.9, "repetition_penalty": 1.3, "max_tokens": 7},
]


class Borrowed:
    """The CPU's model as one that pages: it runs what the state says. Satisfies `generate_prompts.PagedModel`."""

    dependent = False
    device = torch.device("cpu")

    def __init__(self, model: llama.Llama, slots: int) -> None:
        self.model, self.slots, self.vocabulary, self.context = model, slots, model.vocabulary, SETTINGS["context"]

    def step(self, slots: Tensor, state: State) -> Tensor:
        logits = torch.zeros(len(slots), self.vocabulary)
        rows = [(row, slot) for row, slot in enumerate(slots.tolist()) if slot != self.slots]
        spans = [Span(slot, int(state.positions[slot]), (int(state.tokens[slot]),), True) for _, slot in rows]
        if spans:
            logits[[row for row, _ in rows]] = self.model.forward(spans)
        return logits

    def prefill(self, tokens: Tensor, slots: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        logits = torch.zeros(len(last), self.vocabulary)
        row = 0
        for piece, end in enumerate(last.tolist()):
            if row < len(slots) and (slot := int(slots[row])) != self.slots:
                assert slots[row : end + 1].tolist() == [slot] * (end + 1 - row)
                start = int(positions[row])
                assert positions[row : end + 1].tolist() == list(range(start, start + end + 1 - row))
                logits[piece] = self.model.forward([Span(slot, start, tuple(tokens[row : end + 1].tolist()), True)])
                row = -(-(end + 1) // BLOCK) * BLOCK
        assert (slots[row:] == self.slots).all()
        return logits


class Stepping(Generate):
    """A stage that takes a GPU's steps on whatever device it has."""

    steps: GpuSteps

    def _steps(self, loaded: Loaded) -> Steps:
        home, model = Home(self._dtype, self._device.torch), None
        if home.device.type == "cpu":
            plain = llama.load(self.checkpoint, self._dtype, loaded)
            plain.allocate(self._slots, self._context)
            model = Borrowed(plain, self._slots)
        self.steps = GpuSteps(
            model or llama.load_paged(self.checkpoint, home, self._slots, self._context, loaded), self._sample
        )
        return self.steps


@contextmanager
def stepping(device: str = "cpu", family: str = "qwen3", **settings: Any) -> Iterator[Stepping]:
    home = Device(device, threads=1)
    checkpoint = tiny(family, seed=11, tie_word_embeddings=True, head_dim=16)
    stage = Stepping("think", checkpoint, home, **{**SETTINGS, "sample": sample, "slots": 3, **settings})
    try:
        stage.load(lambda name, done, total: None)
        yield stage
    finally:
        asyncio.run(stage.close())
        home.close()


def answers(stage: Generate, asked: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    """All at once."""

    async def everyone() -> list[tuple[int, ...]]:
        return [said.tokens for said in await asyncio.gather(*(ask(stage, **each) for each in asked))]

    return asyncio.run(everyone())


@pytest.fixture(scope="module", params=DEVICES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stepping]:
    with stepping(request.param) as stage:
        yield stage


@pytest.fixture(scope="module")
def alone(stage: Stepping) -> list[tuple[int, ...]]:
    return [answers(stage, [asked])[0] for asked in ASKED]


def test_answers_are_those_of_the_plain_steps(alone: list[tuple[int, ...]]) -> None:
    checkpoint = tiny("qwen3", seed=11, tie_word_embeddings=True, head_dim=16)
    with loaded(checkpoint) as plain:
        assert [answers(plain, [asked])[0] for asked in ASKED] == alone


def test_neighbours_that_join_and_leave_change_nothing(stage: Stepping, alone: list[tuple[int, ...]]) -> None:
    """Four requests for three slots: one waits until another has left."""
    assert answers(stage, ASKED) == alone
    assert answers(stage, ASKED[::-1]) == alone[::-1]


def test_asked_again_after_another_the_answer_is_the_same(stage: Stepping, alone: list[tuple[int, ...]]) -> None:
    assert [answers(stage, [ASKED[i]])[0] for i in (0, 2, 0)] == [alone[0], alone[2], alone[0]]


def test_nothing_is_captured_once_it_is_loaded(stage: Stepping) -> None:
    captures, replays = stage.steps.graphs.captures, stage.steps.graphs.replays
    assert captures == len(Kind) * len(stage.steps.buckets) + len(stage.steps.prompts.lengths)
    answers(stage, ASKED)
    assert stage.stats()["graphs"] == captures
    assert stage.stats()["graph_replays"] > replays


def test_an_answer_ends_at_its_end_token_though_a_step_more_was_launched(
    stage: Stepping, alone: list[tuple[int, ...]]
) -> None:
    ends = alone[0][3]
    cut = alone[0][: alone[0].index(ends) + 1]
    assert answers(stage, [{**ASKED[0], "stop_token_ids": [ends]}]) == [cut]
    assert stage.stats()["running"] == 0


def test_a_prompt_in_pieces_beside_a_stream_gives_what_it_gives_alone(stage: Stepping) -> None:
    asked = [{"text": "s", "max_tokens": 10}, {"text": "word " * 12, "max_tokens": 3}]
    assert answers(stage, asked) == [answers(stage, [each])[0] for each in asked]


def test_prompts_that_come_together_run_together(stage: Stepping, alone: list[tuple[int, ...]]) -> None:
    spans = [Span(slot, 0, tuple(range(5 + slot, 25 + 3 * slot)), slot != 1) for slot in range(3)]
    together = stage._device.submit(lambda: stage.steps.prompts.run(spans).cpu()).result()
    each = [stage._device.submit(lambda s=s: stage.steps.prompts.run([s]).cpu()).result() for s in spans]
    torch.testing.assert_close(together, torch.cat(each), rtol=1e-4, atol=1e-4)
    assert len(together) == 2, "one wanted no logits"


def test_a_reader_that_lags_behind_loses_nothing(stage: Stepping, alone: list[tuple[int, ...]]) -> None:
    async def slowly() -> list[int]:
        flow = Flow(1)
        running = stage.start(flow, messages=said(ASKED[0]["text"]), max_tokens=12, temperature=0.0)
        flow.output("tokens", running.tokens, window=1)
        found = []
        async for event in flow:
            if isinstance(event, Piece):
                found.append(event.value)
                await asyncio.sleep(0.02)
        return found

    assert tuple(asyncio.run(slowly())) == alone[0]


def test_memory_that_runs_out_in_a_capture_is_told_when_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(graphs: Graphs, key: object, body: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Graphs, "capture", full)
    with pytest.raises(torch.OutOfMemoryError), stepping():
        pass


def test_memory_that_runs_out_in_a_step_is_a_failure_that_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepping() as stage:

        def full(request: Any) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory")

        with monkeypatch.context() as patch:
            patch.setattr(stage.steps, "_join", full)
            with pytest.raises(StageFailed, match="out of memory") as failure:
                answers(stage, [ASKED[2]])
        assert failure.value.retryable
        assert len(answers(stage, [ASKED[0]])[0]) == 12, "and the stage goes on"


def test_logits_that_are_no_numbers_fail_their_request_alone() -> None:
    with stepping() as stage:
        step = stage.steps.model.step

        def unsound(slots: Tensor, state: State) -> Tensor:
            logits = step(slots, state)
            return logits.masked_fill((slots == 0).unsqueeze(1), torch.nan)

        stage.steps.model.step = unsound  # type: ignore[method-assign]  # a model that goes wrong in one slot

        async def both() -> list[Any]:
            return await asyncio.gather(*(ask(stage, **ASKED[i]) for i in (0, 1)), return_exceptions=True)

        both_ends = sorted(asyncio.run(both()), key=lambda end: isinstance(end, StageFailed))
        assert both_ends[0].finished.finish_reason == "length"
        assert "not numbers" in str(both_ends[1])


def test_rows_of_one_step_run_with_what_any_of_them_asks_for() -> None:
    assert Kind.of([Draw(0, 0.0)]) is Kind.GREEDY
    assert Kind.of([Draw(0, 0.0, top_k=3)]) is Kind.GREEDY, "the likeliest is among the top"
    assert Kind.of([Draw(0, 0.0), Draw(1, 0.7, top_p=1.0, top_k=0)]) is Kind.DRAWN
    assert Kind.of([Draw(0)]) is Kind.DRAWN, "what is pinned is not in the request"
    assert Kind.of([Draw(0, 0.0), Draw(1, 0.7, top_p=0.9)]) is Kind.FULL
    assert Kind.of([Draw(0, 0.0, repetition_penalty=1.1)]) is Kind.FULL


@pytest.mark.parametrize(("slots", "sizes"), [(1, (1,)), (3, (1, 2, 3)), (64, (1, 2, 4, 8, 16, 32, 64))])
def test_buckets_reach_from_one_row_to_all_slots(slots: int, sizes: tuple[int, ...]) -> None:
    assert buckets(slots) == sizes


def test_pieces_of_prompts_run_together_while_there_is_room() -> None:
    spans = [Span(slot, 0, (0,) * length, True) for slot, length in enumerate((BLOCK, 1, BLOCK + 1, 3))]
    assert [[span.slot for span in group] for group in packed(spans, 4 * BLOCK)] == [[0, 1, 2], [3]]
    assert packed([], BLOCK) == []


def test_a_model_whose_family_has_no_steps_for_a_gpu_is_refused(parrot: Parrot) -> None:
    stage = Generate("think", PARROT, Device("gpu0"), **{**SETTINGS, "sample": sample})
    with pytest.raises(Elsewhere, match="`parrot` decode on a CPU alone"):
        stage._steps(lambda done, total: None)


def test_heads_that_the_kernels_cannot_take_are_told_before_anything_is_loaded() -> None:
    with pytest.raises(Elsewhere, match="heads of 24 numbers"):
        llama.load_paged(tiny("qwen3", head_dim=24), Home("float32"), 1, 64, lambda done, total: None)
