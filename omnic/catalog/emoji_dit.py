"""emoji_dit: the small painter of emoji that omnic trains itself (`pipelines/emoji/train`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from omnic.catalog.part import EACH, Cost, Key, Model, Part, Port, StepCache, WeightGroup
from omnic.catalog.safetensors import Tensor
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Size, parse

_PROCESS_BYTES = 120 << 20  # diffusers' schedulers; measured
_DRIFT = "pixels in 0..1 move by {} on average, by {} in the worst picture (20 steps, 3 prompts)"  # step_cache.py
_WIDTHS = (("fp32", 4), ("bf16", 2))


def from_checkpoint(config: Mapping[str, Any], tensors: Sequence[Tensor], where: str) -> Model:
    """The painter of a directory."""
    model, default = config["model"], config["default"]
    rows = (model["size"] // model["patch"]) ** 2 + model["tokens"]
    elements = sum(prod(t.shape) for t in tensors)
    origin = f"{where}/config.json"
    side = int(model["size"])
    kept = parse(f"2 * 2 * {rows * model['width']}")  # of two branches: what is compared, and what blocks added
    costs = tuple(
        (
            name,
            Cost(
                weights=(WeightGroup("painter", elements * size),),
                activation_bytes=parse(f"2 * batch * {rows * (6 * model['width'] + 2 * model['hidden']) * size}"),
                process_bytes=_PROCESS_BYTES,
            ),
        )
        for name, size in _WIDTHS
    )
    denoiser = Part(
        "denoiser",
        "denoise",
        inputs=(Port("condition", Type("embeds", (int(model["text"]),)), streams=EACH, origin=origin),),
        outputs=(
            Port("image", Type("image", bounds=(("pixels", side * side),)), streams=EACH, origin=origin,
                 follows="condition"),
        ),
        keys=(
            Key("steps", Type("int"), int(default["steps"]), Range(1, 1000), "steps from noise to picture",
                field="num_inference_steps", origin=origin),
            Key("guidance", Type("float"), float(default["guidance"]), Range(0.0, 20.0),
                "how closely to follow the prompt; 1 adds nothing", field="guidance_scale", origin=origin),
            Key("seed", Type("seed"), None, doc="the same seed gives the same picture", field="seed"),
        ),
        cost=costs[0][1],
        costs=costs,
        adapts={"transformer": {t.name: (1, t.shape) for t in tensors}},
        step_caches=(
            StepCache("first_block", 0.1, f"{_DRIFT.format(0.002, 0.004)}; 28 % of forwards were short", kept),
            StepCache("tea", 0.1, f"{_DRIFT.format(0.005, 0.011)}; 41 % of forwards were short", kept),
        ),
        doc=f"paints an emoji of {Size(side, side)} pixels",
    )  # fmt: skip
    return Model("emoji_dit", "safetensors", {"denoiser": denoiser}, dict(config), license="Apache-2.0", origin=origin)
