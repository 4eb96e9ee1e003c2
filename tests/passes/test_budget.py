"""What fits and what does not, said with the lines of source it comes from."""

from __future__ import annotations

import json
import re

import pytest

from omnic import target
from omnic.passes.report import plan_json, plan_markdown, plan_text
from tests.catalog.checkpoints import TINY, write_checkpoint
from tests.passes.planning import ANSWER, plan

TWO = """\
pipeline pair {
  model lm = path("lm")
  input messages: chat<text, tokens = 256>
  output a: text
  output b: text
  stage first  = lm.generate { max_tokens = 128, kv_cache = FIRST }
  stage second = lm.generate { max_tokens = 128, kv_cache = SECOND }
  messages -> first.messages
  messages -> second.messages
  first.text -> a
  second.text -> b
  serve chat.completions { text = a }
}
"""


@pytest.fixture
def world(tmp_path):
    """A checkpoint of 4.0 GiB in headers alone (its data is a hole), and devices of 80 GiB in files."""
    config = TINY | {"hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 8, "num_attention_heads": 32}
    write_checkpoint(tmp_path / "lm", config)
    device = {"memory_gib": 80}
    for name, devices in (("one", [device]), ("busy", [device | {"free_gib": 20}]), ("four", [device | {"count": 4}])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"host": {"memory_gib": 64}, "devices": devices}))
    return tmp_path


def two(world, first, second, machine):
    text = TWO.replace("FIRST", first).replace("SECOND", second)
    return plan(text, target=str(world / f"{machine}.json"), base=world)


def test_weights_are_read_from_the_headers(world):
    planned = two(world, "1GiB", "1GiB", "one")
    items = dict(planned.pipeline.devices[0].items)
    assert items["first weights"] == planned.context.models["lm"].parts["generate"].cost.weight_bytes
    file = world / "lm" / "model.safetensors"
    with file.open("rb") as opened:
        header = 8 + int.from_bytes(opened.read(8), "little")
    assert items["first weights"] == file.stat().st_size - header


def test_two_stages_that_fit_one_by_one_are_summed(world):
    assert two(world, "40GiB", "20GiB", "one").ids == []
    planned = two(world, "64GiB", "24GiB", "one")
    assert planned.ids == ["does-not-fit"]
    found = planned.sink.diagnostics[0]
    assert found.headline.startswith("`first` and `second` need ")
    assert found.headline.endswith(" on one device of 80 GiB")
    assert found.primary.span.line == 6  # the larger of the two
    assert [label.span.line for label in found.secondary] == [7]
    assert found.primary.span.text == "kv_cache = 64GiB"
    assert found.notes[0].startswith("gpu0 has 80 GiB\n  first weights ")


def test_what_others_hold_of_a_device_counts(world):
    assert two(world, "8GiB", "4GiB", "one").ids == []
    planned = two(world, "8GiB", "4GiB", "busy")
    assert planned.ids == ["does-not-fit"]
    assert "of 80 GiB, 20 GiB free" in planned.sink.diagnostics[0].headline


def test_the_smallest_changes_that_are_offered_do_fit(world):
    (found,) = two(world, "50GiB", "36GiB", "one").sink.diagnostics
    sizes = {stage: size for size, stage in re.findall(r"`kv_cache = (\w+)` on `(\w+)`", found.help[0])}
    assert set(sizes) == {"first", "second"}
    assert two(world, sizes["first"], "36GiB", "one").ids == []
    assert two(world, "50GiB", sizes["second"], "one").ids == []


def test_with_more_devices_the_planner_spreads_them(world):
    planned = two(world, "64GiB", "24GiB", "four")
    assert planned.ids == []
    on = {s.name: dict(s.how)["on"].value for s in planned.pipeline.stages}
    assert on["first"] != on["second"]


def test_visible_devices_are_shown_by_their_ids(world, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,4,6")
    planned = two(world, "64GiB", "24GiB", "four")
    assert planned.context.visible == ("2", "3", "4", "6")
    text = plan_text(planned.pipeline, planned.context)
    assert [f"gpu{i} (here {n})" in text for i, n in enumerate("2346")] == [True] * 4
    # where a build is served the variable may differ, so what it keeps does not know it
    assert "(here" not in plan_markdown(planned.pipeline, planned.context)


def test_fewer_visible_devices_than_the_target_has_are_refused(world, monkeypatch):
    from omnic.diagnostics import Sink
    from omnic.passes import Context

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    sink, lowered = Sink(), two_lowered()
    assert Context.make(lowered, target=str(world / "four.json"), sink=sink) is None
    assert sink.diagnostics[0].headline == "target `four` requires 4 devices, 2 visible"


def two_lowered():
    class Nothing:
        pipeline = models = parts = deploy = None
        sources = ()

    return Nothing()


def test_a_plan_for_this_machine_that_does_not_fit_now_warns(monkeypatch):
    monkeypatch.setattr(target, "_memory", lambda: (64 << 30, 100 << 20))
    planned = plan(ANSWER)
    assert planned.ids == ["not-free-now"]
    assert not planned.sink.has_errors
    monkeypatch.setattr(target, "_memory", lambda: (200 << 20, 200 << 20))
    assert plan(ANSWER).ids == ["does-not-fit"]


def test_a_limit_of_a_deploy_block_is_held(world):
    text = ANSWER + 'deploy small { target = gpu("h200"), limit memory(gpu) <= 700MiB }\n'
    assert plan(text, deploy="small").ids == []
    planned = plan(text.replace("700MiB", "300MiB"), deploy="small")
    (found,) = planned.sink.diagnostics
    assert (found.id, found.primary.span.line) == ("does-not-fit", 10)
    assert found.headline.startswith("`limit memory(gpu) <= 300MiB` is not met: `gpu0` needs ")


def test_a_target_file_is_looked_for_beside_the_source(world):
    text = ANSWER + 'deploy there { target = "busy.json" }\n'
    (world / "answer.omni").write_text(text)
    pipeline = plan(text, deploy="there", base=world).pipeline
    assert (pipeline.target, [d.name for d in pipeline.devices]) == ("busy", ["gpu0", "host"])


def test_a_limit_on_what_the_target_lacks_is_refused():
    assert plan(ANSWER + "deploy here { target = cpu, limit memory(gpu) <= 1GiB }\n", deploy="here").ids == [
        "no-such-device"
    ]


def test_the_json_of_a_plan_adds_up():
    planned = plan(ANSWER)
    record = json.loads(plan_json(planned.pipeline, planned.context))
    for device in record["devices"].values():
        assert device["planned_bytes"] == sum(device["items"].values())
    assert "Predicted times come with a later version." in plan_text(planned.pipeline, planned.context)
