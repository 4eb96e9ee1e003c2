"""The frame of the passes: specs, order, what is printed, promises that are held."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from omnic.ir.pipeline import Pipeline
from omnic.ir.text import parse
from omnic.passes import DEFAULT, PASSES, Context, Pass, PassBroken, history, parse_spec, run
from omnic.passes.batch import BatchPass
from omnic.passes.place import PlacePass
from omnic.passes.slice import SlicePass
from tests.passes.planning import ANSWER, plan


def test_the_default_order():
    order = "slice stream quantize batch place offload move capture budget"
    assert [p.name for p in DEFAULT] == order.split()
    assert list(PASSES) == [p.name for p in DEFAULT]


def test_a_spec_names_passes_and_their_options():
    assert parse_spec("slice,place{reserve=0.1}") == (SlicePass(), PlacePass(reserve=0.1))
    assert parse_spec("batch{slots=4, chunk=32}") == (BatchPass(slots=4, chunk=32),)
    assert parse_spec("place{reserve=0}") == (PlacePass(reserve=0.0),)
    assert parse_spec("") == ()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("plcae", "there is no pass `plcae`; did you mean `place`?"),
        ("zzz", "there is no pass `zzz`; passes are slice, stream, quantize, batch, place, offload, move, capture"),
        ("shard", "pass `shard` comes later: omnic cannot spread a stage over several devices yet"),
        ("place{room=1}", "pass `place` has no option `room`; it has reserve"),
        ("slice{x=1}", "pass `slice` has no option `x`; it has none"),
        ("place{reserve=big}", "option `reserve` of pass `place` is a float, not `big`"),
        ("batch{slots=0.5}", "option `slots` of pass `batch` is a int, not `0.5`"),
        ("place{reserve=1}", "option `reserve` of pass `place` is a share from 0 and below 1, not 1.0"),
        ("budget{reserve=1e999}", "option `reserve` of pass `budget` is a share from 0 and below 1, not inf"),
        ("place{reserve=0.1, reserve=0.2}", "option `reserve` of pass `place` is set twice"),
        ("place{reserve=0.1", "expected"),
        ("slice place", "expected the end"),
    ],
)
def test_a_spec_that_makes_no_sense_says_why(spec, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_spec(spec)


def test_every_pass_says_what_it_decides_and_promises():
    assert all(p.__doc__ and "After it" in p.__doc__ for p in PASSES.values())


def test_each_step_is_kept_and_the_input_is_not_changed():
    lowered = plan(ANSWER, passes=())
    before = lowered.pipeline
    steps = list(history(DEFAULT, before, lowered.context))
    assert [s.after for s in steps] == [p.name for p in DEFAULT]
    assert before.stages[0].how == ()
    assert steps[-1].pipeline.devices


def test_printing_after_a_pass(capsys):
    lowered = plan(ANSWER, passes=())
    run(DEFAULT, lowered.pipeline, lowered.context, print_after="batch,move")
    printed = capsys.readouterr().out.split("// after ")[1:]
    assert [text.partition("\n")[0] for text in printed] == ["batch", "move"]
    first = parse(printed[0].partition("\n")[2])
    assert dict(first.stage("think").how)["slots"].value == 8
    assert "on" not in dict(first.stage("think").how)


def test_printing_after_all(capsys):
    lowered = plan(ANSWER, passes=())
    run(DEFAULT, lowered.pipeline, lowered.context, print_after="all")
    assert capsys.readouterr().out.count("// after ") == len(DEFAULT)


@dataclass(frozen=True, slots=True)
class Forgetful(Pass):
    """Promises what it does not do."""

    name: ClassVar[str] = "forgetful"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        return pipeline

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        yield "nothing was decided"


@dataclass(frozen=True, slots=True)
class Careless(Pass):
    """Leaves a pipeline that is not sound."""

    name: ClassVar[str] = "careless"

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        return replace(pipeline, stages=())


@pytest.mark.parametrize(
    ("pass_", "message"),
    [
        (Forgetful(), "after pass `forgetful`: nothing was decided"),
        (Careless(), "after pass `careless`: output `reply` comes from `think.text`, which nothing gives"),
    ],
)
def test_a_promise_that_is_not_kept_is_a_fault_of_ours(pass_, message):
    lowered = plan(ANSWER, passes=())
    with pytest.raises(PassBroken) as error:
        run((pass_,), lowered.pipeline, lowered.context)
    assert message in str(error.value)


def test_passes_stop_at_the_first_that_finds_a_mistake():
    text = ANSWER.replace("tokens = 256", "tokens = 2000")
    planned = plan(text)
    assert planned.ids == ["context-too-long"]
    assert dict(planned.pipeline.stage("think").how).keys() == {"dtype"}


def test_planning_twice_gives_the_same_text():
    from omnic.ir.text import dump

    assert dump(plan(ANSWER).pipeline) == dump(plan(ANSWER).pipeline)


def test_nothing_of_this_machine_is_in_a_plan_for_a_cpu(monkeypatch):
    from omnic import target
    from omnic.passes.report import plan_json, plan_markdown, plan_text

    def documents() -> tuple[str, str]:
        planned = plan(ANSWER)
        return plan_markdown(planned.pipeline, planned.context), plan_json(planned.pipeline, planned.context)

    here = documents()
    monkeypatch.setattr(target, "_memory", lambda: (77 << 30, 55 << 30))
    monkeypatch.setattr(target, "machine_cores", lambda: 99)
    assert documents() == here
    planned = plan(ANSWER)
    assert "77 GiB, 55 GiB of it free" in plan_text(planned.pipeline, planned.context)
