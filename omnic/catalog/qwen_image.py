"""qwen_image: Qwen-Image. A Qwen2.5-VL text encoder, a diffusion transformer of two streams, a causal video VAE."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog import diffusion as d
from omnic.catalog import video
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Capture, Part, Port
from omnic.contract.types import Type
from omnic.expr import Size, parse

_TOKENS = 1024  # of a prompt; the model was trained no further
_SPECIAL = ("zero_cond_t", "use_additional_t_cond", "use_layer3d_rope", "guidance_embeds")  # conditions without graphs
_KEPT = 4  # layers at either end that stay in bf16 where the rest is in fp8
_ERROR = "relative error of a step 1.9e-2 against bf16, measured with random weights"


def parts(index: Index) -> tuple[Part, ...]:
    return made(index, edits=False)


def _capture(transformer: Component, inner: int) -> Capture | None:
    """What depends on the timesteps alone is kept for the last four schedules, and a step of it for each job of each
    graph."""
    if any(transformer.config.get(name) for name in _SPECIAL):
        return None
    step = 2 * 12 * int(transformer.config["num_layers"]) * inner  # bytes
    held = parse(f"{step} * (4 * steps_high + 20 * batch * (batch + 1))")
    return Capture(("bf16", "fp8"), (64, 128, 256, 512, 1024), held, {"fp8": _ERROR})


def _flops(transformer: Component, inner: int, patches: str) -> str:
    """Matrices of the picture's stream and attention among its patches; those of the text, far fewer, are left out."""
    return f"{int(transformer.config['num_layers'])} * {inner} * {patches} * ({24 * inner} + 4 * {patches})"


def _with_fp8(part: Part, transformer: Component, inner: int) -> Part:
    """The denoiser, which can also hold the image's matrices in fp8, with a float32 scale an output: twelve squares of
    the width a layer, but for the layers at both ends."""
    layers = int(transformer.config["num_layers"]) - 2 * _KEPT
    if part.capture is None or layers < 1:
        return part
    wide = dict(part.costs)["bf16"]
    (group,) = wide.weights
    saved = layers * (12 * inner * inner - 4 * 9 * inner)
    narrow = replace(wide, weights=(replace(group, bytes=group.bytes - saved),))
    return replace(part, costs=(*part.costs, ("fp8", narrow)))


def made(index: Index, *, edits: bool) -> tuple[Part, ...]:
    """The parts. A model that `edits` sees a picture: in its encoder, and as latents beside those it paints."""
    encoder, transformer, vae = index["text_encoder"], index["transformer"], index["vae"]
    text = encoder.config.get("text_config", encoder.config)
    width, channels = int(text["hidden_size"]), int(vae.config["z_dim"])
    scale = 2 ** len(vae.config["temperal_downsample"])
    latents = d.latents(channels, scale, scale)
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    patches = f"size_high / {(2 * scale) ** 2}"
    size = d.size(Size(1024, 1024), 2 * scale)
    pixels = video.held(vae)
    unused = ("lm_head.",) if edits else ("visual.", "model.visual.", "lm_head.")
    condition = Port("condition", Type("embeds", (width,)), origin=index.where)
    given = Port("reference" if edits else "latents", latents, required=edits, origin=index.where)
    keys = (d.steps(50), d.guidance(4.0), d.seed())
    area, widest = ("1048576", f"({patches} + {1048576 // (2 * scale) ** 2})") if edits else ("size_high", patches)
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": encoder.elements(without=unused)},
            encoder.stored,
            hidden=3 * int(text["intermediate_size"]),
            more=(Port("image", Type("image")),) if edits else (),
        ),
        _with_fp8(
            d.denoiser(
                index,
                transformer,
                (condition, given),
                latents,
                (replace(size, default=None), *keys) if edits else (size, d.strength(), *keys),
                activation=f"2 * batch * ({widest} + {_TOKENS}) * {14 * inner}",
                latent_bytes=f"4 * batch * {4 * channels} * {patches}",
                caches=d.caches(f"({widest})", _TOKENS, inner, first_block=0.1),
                capture=_capture(transformer, inner),
                forward_flops=_flops(transformer, inner, patches),
            ),
            transformer,
            inner,
        ),
        video.picture(index, latents),
        d.vae_encode(
            index, latents, () if edits else (size,), activation=f"{area} * {pixels.picture * pixels.encoder_width}"
        ),
    )
