"""The parts that diffusion families share: text encoders, denoisers, VAEs, and the keys they have."""

from __future__ import annotations

from collections.abc import Mapping

from omnic.catalog.blocks import blocks
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Capture, Cost, Key, Part, Port, StepCache, WeightGroup
from omnic.contract.domains import Range
from omnic.contract.types import Ratio, Type
from omnic.expr import Quantity, Size, parse

WIDTHS = {"bf16": 2, "fp32": 4}
_PROCESS_BYTES = 300 << 20  # torch, transformers and diffusers once a component is loaded; measured on a CPU
_UNUSED = ("bn.num_batches_tracked",)  # saved with a module and never read
_HELD = {"F32": "fp32", "F64": "fp32"}  # anything else is held in bf16 unless asked for
_NONE: Mapping[str, int] = {}
WHOLE, FRAMES = ("whole",), ("chunk", "whole")
"""How latents flow: at once, or also some frames at a time."""


def costs(
    groups: dict[str, int], stored: str, activation: str = "0", latents: str = "0", float32: Mapping[str, int] = _NONE
) -> tuple[tuple[str, Cost], ...]:
    """Costs by precision, the stored one first. `groups` are elements by name, and `float32` those of them that stay
    so in any precision; `activation` is bytes at one byte an element, `latents` the bytes that a request keeps from
    step to step."""
    first = _HELD.get(stored, "bf16")

    def held(name: str, elements: int, width: int) -> WeightGroup:
        wide = float32.get(name, 0)
        return WeightGroup(name, (elements - wide) * width + wide * WIDTHS["fp32"])

    return tuple(
        (
            precision,
            Cost(
                weights=tuple(held(name, elements, WIDTHS[precision]) for name, elements in groups.items()),
                activation_bytes=parse(f"{WIDTHS[precision]} * ({activation}) + {latents}"),
                process_bytes=_PROCESS_BYTES,
            ),
        )
        for precision in (first, "fp32" if first == "bf16" else "bf16")
    )


def text_encoder(
    index: Index, width: int, tokens: int, groups: dict[str, int], stored: str, *, negative: bool = True,
    hidden: int | None = None, name: str = "text_encoder", more: tuple[Port, ...] = (),
) -> Part:  # fmt: skip
    """Text to `embeds<width>`; with `negative`, also what to keep away from. `hidden` is the widest activation, `more`
    are inputs besides."""
    ports = [Port("text", Type("text")), *more]
    if negative:
        ports.append(Port("negative", Type("text"), required=False))
    priced = costs(groups, stored, activation=f"{tokens * (hidden or 6 * width)}")
    return Part(
        name,
        "transform",
        inputs=tuple(ports),
        outputs=(Port("embeds", Type("embeds", (width,), (("tokens", tokens),)), origin=index.where),),
        cost=priced[0][1],
        costs=priced,
        doc=f"text, up to {tokens} tokens, to embeddings",
    )


def denoiser(
    index: Index, component: Component, inputs: tuple[Port, ...], latents: Type, keys: tuple[Key, ...],
    activation: str, latent_bytes: str, *, groups: dict[str, int] | None = None, output: str = "latents",
    more: tuple[Port, ...] = (), stored: str | None = None, float32: Mapping[str, int] = _NONE,
    streams: tuple[str, ...] = WHOLE, caches: tuple[StepCache, ...] = (), adapts: tuple[str, ...] = (),
    capture: Capture | None = None, replays: bool = False, compiles: bool = True,
    wide: tuple[str, ...] = (), forward_flops: str = "0",
) -> Part:  # fmt: skip
    """The iterative part. `activation` is elements of one forward; `latent_bytes` what a request in work keeps.
    `stored` is what it was released to run in, where that is not what its file holds. `wide` as `blocks` has it;
    `forward_flops` are those of one row of a forward. Where it `replays`, its calls can be graphs, and `compiles` says
    whether its blocks can be compiled."""
    transformers = [index[name] for name in adapts or (component.name,)]
    groups = groups or {component.name: component.elements()}
    priced = costs(groups, stored or component.stored, activation, latent_bytes, float32)
    return Part(
        "denoiser",
        "denoise",
        inputs=inputs,
        outputs=(Port(output, latents, streams=streams, origin=index.where), *more),
        keys=keys,
        cost=priced[0][1],
        costs=priced,
        step_caches=caches,
        capture=_replayed(activation, compiles) if replays else capture,
        blocks=tuple((p, tuple(blocks(one, WIDTHS[p], wide) for one in transformers)) for p, _ in priced),
        forward_flops=parse(forward_flops),
        adapts={one.name: one.tensors for one in transformers},
        doc="from noise to latents, step by step",
    )


def _replayed(activation: str, compiles: bool) -> Capture:
    """Graphs of calls: beside what shapes without one take, they hold what one forward does."""
    return Capture(("bf16",), bytes=parse(f"{WIDTHS['bf16']} * ({activation})"), compiles=compiles)


def caches(tokens: str, beside: int, width: int, **thresholds: float) -> tuple[StepCache, ...]:
    """Step caches by kind, for blocks of `width` that change `tokens` and, of the text, `beside`. A request keeps for
    each of two branches what its changes are measured against and what the blocks added."""
    state = parse(f"2 * (2 * {tokens} + {beside}) * {width}")
    return tuple(StepCache(kind, threshold, state=state) for kind, threshold in thresholds.items())


def vae_decode(index: Index, latents: Type, output: Port, activation: str, *, component: str = "vae",
               name: str = "vae_decode", port: str = "latents", keys: tuple[Key, ...] = (),
               streams: tuple[str, ...] = WHOLE, result: str = "0") -> Part:  # fmt: skip
    """Latents to a picture, a video or sound, which takes `result` bytes. The encoder's weights are not loaded."""
    held = index[component]
    groups = {component: held.elements(without=("encoder.", "quant_conv.", *_UNUSED))}
    priced = costs(groups, held.stored, activation, result)
    return Part(
        name,
        "transform",
        inputs=(Port(port, latents, streams=streams, origin=index.where),),
        outputs=(output,),
        keys=keys,
        cost=priced[0][1],
        costs=priced,
        doc=f"latents to {output.type.kind}",
    )


def vae_encode(index: Index, latents: Type, keys: tuple[Key, ...], activation: str, *, component: str = "vae",
               name: str = "vae_encode") -> Part:  # fmt: skip
    """A picture, brought to the size of what is made, to latents. The decoder's weights are not loaded."""
    held = index[component]
    groups = {component: held.elements(without=("decoder.", "post_quant_conv.", *_UNUSED))}
    priced = costs(groups, held.stored, activation)
    return Part(
        name,
        "transform",
        inputs=(Port("image", Type("image")),),
        outputs=(Port("latents", latents, origin=index.where),),
        keys=keys,
        cost=priced[0][1],
        costs=priced,
        doc="a picture to latents",
    )


def latents(channels: int, *factors: int) -> Type:
    """`latents<16, /8x8>`."""
    return Type("latents", (channels, Ratio(factors)))


def steps(default: int, most: int = 1000) -> Key:
    return Key("steps", Type("int"), default, Range(1, most), "steps from noise to the result",
               field="num_inference_steps")  # fmt: skip


def guidance(default: float, most: float = 50.0, name: str = "guidance", field: str | None = "guidance_scale",
             doc: str = "how closely to follow the prompt; 1 adds nothing") -> Key:  # fmt: skip
    """Classifier-free guidance; 1 leaves it out."""
    return Key(name, Type("float"), default, Range(0.0, most), doc, field=field)


def size(default: Size, multiple: int, most: int = 2048, least: int | None = None) -> Key:
    """Width and height in pixels, multiples of `multiple`."""
    low = least or multiple
    return Key("size", Type("size"), default, Range(Size(low, low), Size(most, most), multiple),
               f"width x height in pixels, multiples of {multiple}", field="size", shared=True)  # fmt: skip


def frames(default: int, multiple: int, most: int) -> Key:
    """Frames of a video: one, and `multiple` more each time."""
    return Key("frames", Type("int"), default, Range(1, most, multiple), f"frames: {multiple}k + 1",
               field="num_frames", shared=True)  # fmt: skip


def seed() -> Key:
    return Key("seed", Type("seed"), None, doc="the same seed gives the same result", field="seed")


def strength(port: str = "latents") -> Key:
    """For changing a picture whose latents come at `port`."""
    return Key("strength", Type("float"), 1.0, Range(0.0, 1.0),
               "how much of the given picture to change; at 1 nothing of it is left",
               field="strength", port=port)  # fmt: skip


def image(index: Index) -> Port:
    return Port("image", Type("image"), origin=index.where)


def video(index: Index, fps: int) -> Port:
    """A video that comes frame by frame."""
    return Port("video", Type("video", (Quantity(fps, "fps"),)), streams=("chunk", "whole"), origin=index.where)
