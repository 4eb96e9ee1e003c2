"""Blocks on the host in whole plans: what each side holds, how many stay, what is told of time, what is suggested."""

from __future__ import annotations

import re

import pytest

from omnic.contract.blocks import leaving
from omnic.ir.pipeline import get
from omnic.passes import parse_spec
from omnic.passes.offload import OffloadPass
from omnic.passes.report import plan_text
from tests.passes.planning import Planned, plan, row

TEXT = """
pipeline drawn {{
  model m = random("qwen_image", like = "Qwen/Qwen-Image")
  input  prompt: text
  output image:  image
  stage read = m.text_encoder
  stage draw = m.denoiser {{ size = {size}, {keys} }}
  stage show = m.vae_decode
  prompt       -> read.text
  read.embeds  -> draw.condition
  draw.latents -> show.latents
  show.image   -> image
}}
deploy here {{
  target = {target}
{more}
}}
"""
BLOCKS = 60


def planned(keys: str, *, target: str = 'gpu("h200")', size: str = "1024x1024", more: str = "") -> Planned:
    return plan(TEXT.format(keys=keys, size=size, target=target, more=more), deploy="here")


def held(p: Planned, device: str, item: str) -> int:
    return next(dict(d.items).get(item, 0) for d in p.pipeline.devices if d.name == device)


def resident(p: Planned) -> int | None:
    found = get(p.pipeline.stage("draw").how, "resident")
    return None if found is None else int(found.value)


def test_the_device_holds_what_stays_and_two_buffers_and_the_host_what_leaves() -> None:
    whole, away = planned("engine = eager"), planned("offload = layers(resident = 20)")
    (sizes,) = away.context.parts["draw"].blocks_as("bf16")
    gone = [sizes[at] for at in leaving(BLOCKS, 20)]
    assert len(gone) == 40
    assert held(away, "host", "draw blocks") == sum(gone)
    saved = held(whole, "gpu0", "draw weights") - held(away, "gpu0", "draw weights")
    assert saved == sum(gone) - 2 * max(gone)
    assert held(whole, "host", "draw blocks") == 0


def test_layers_alone_keeps_the_most_that_fit() -> None:
    p = planned("offload = layers, batch = 1", target='gpu("l40s")')
    assert p.ids == []
    most = resident(p)
    assert most is not None
    assert 0 < most < BLOCKS
    fits = planned(f"offload = layers(resident = {most}), batch = 1", target='gpu("l40s")')
    assert fits.ids == []
    assert planned(f"offload = layers(resident = {most + 1}), batch = 1", target='gpu("l40s")').ids == ["does-not-fit"]


def test_a_limit_on_memory_counts_as_room() -> None:
    p = planned("offload = layers, batch = 1", more="  limit memory(gpu) <= 30GiB")
    wide = planned("offload = layers, batch = 1", more="  limit memory(gpu) <= 40GiB")
    assert p.ids == wide.ids == []
    assert held(p, "gpu0", "draw weights") < held(wide, "gpu0", "draw weights")


def test_what_does_not_fit_is_told_how_many_blocks_may_stay() -> None:
    """A transformer that takes the whole card is never moved as a whole: blocks leave, or the plan is refused."""
    target = 'gpu("l40s")'
    refused = planned("engine = eager, batch = 1", target=target)
    assert refused.ids == ["does-not-fit"]
    suggested = re.search(r"`(offload = layers\(resident = (\d+)\))` on `draw`", refused.said)
    assert suggested is not None
    assert planned(f"{suggested[1]}, batch = 1", target=target).ids == []
    more = int(suggested[2]) + 1
    assert planned(f"offload = layers(resident = {more}), batch = 1", target=target).ids == ["does-not-fit"]


def test_too_many_that_stay_are_told_how_many_may() -> None:
    refused = planned("offload = layers(resident = 50), batch = 1", target='gpu("l40s")')
    suggested = re.search(r"resident = (\d+)", refused.said.partition("help")[2])
    assert suggested is not None
    assert int(suggested[1]) < 50


def test_the_host_must_hold_what_leaves() -> None:
    refused = planned("offload = layers(resident = 0)", target='gpu("h200", host_memory = 16GiB)')
    assert refused.ids == ["does-not-fit"]
    assert "draw blocks" in refused.said
    assert planned("offload = layers(resident = 0)", target='gpu("h200", host_memory = 64GiB)').ids == []


def test_nothing_is_suggested_that_the_host_cannot_hold() -> None:
    refused = planned("engine = eager, batch = 1", target='gpu("l40s", host_memory = 8GiB)')
    assert refused.ids == ["does-not-fit"]
    assert "offload" not in refused.said


@pytest.mark.parametrize(
    ("resident", "target", "size", "said"),
    [
        (0, 'gpu("h200")', "1024x1024", "fetches for 741 ms, more than the 332 ms of work of one request of 1024x1024"),
        (36, 'gpu("h200")', "1024x1024", "fetches for 297 ms, hidden behind the 332 ms of work"),
        (0, 'gpu("h200")', "2048x2048", "hidden behind the"),
        (0, "gpu(memory = 140GiB)", "1024x1024", "lie on the host, 38 GiB"),
    ],
)
def test_the_plan_says_how_long_is_fetched_and_whether_work_hides_it(
    resident: int, target: str, size: str, said: str
) -> None:
    """As measured on that GPU: 332 ms with all blocks there, 342 with 36, 738 with none (benchmarks/offload.py)."""
    p = planned(f"offload = layers(resident = {resident})", target=target, size=size)
    assert said in row(plan_text(p.pipeline, p.context), "resident")[-1]


def test_it_runs_eagerly_and_says_why() -> None:
    p = planned("offload = layers(resident = 20)")
    _, engine, _, why = row(plan_text(p.pipeline, p.context), "engine")
    assert (engine, why) == ("eager", "graphs do not fetch blocks from the host yet")


def test_experts_have_as_many_each_and_share_two_buffers() -> None:
    text = """
    pipeline filmed {{
      model m = random("wan", like = "Wan-AI/Wan2.2-T2V-A14B-Diffusers")
      input  prompt: text
      output video:  video<16fps>
      stage read = m.text_encoder
      stage draw = m.denoiser {{ size = 832x480, frames = 81, {keys} }}
      stage show = m.vae_decode
      prompt       -> read.text
      read.embeds  -> draw.condition
      draw.latents -> show.latents
      show.video   -> video
    }}
    """
    whole, away = (
        plan(text.format(keys=keys), target="gpu:h200")
        for keys in ("engine = eager", "offload = layers(resident = 10)")
    )
    high, low = away.context.parts["draw"].blocks_as("bf16")
    gone = [each[at] for each in (high, low) for at in leaving(40, 10)]
    assert held(away, "host", "draw blocks") == sum(gone)
    saved = held(whole, "gpu0", "draw weights") - held(away, "gpu0", "draw weights")
    assert saved == sum(gone) - 2 * max(gone)


def test_a_spec_sets_its_reserve() -> None:
    assert parse_spec("offload{reserve=0.1}") == (OffloadPass(reserve=0.1),)
    with pytest.raises(ValueError, match="option `reserve` of pass `offload` is a share"):
        parse_spec("offload{reserve=2}")
