"""hunyuan_video15: HunyuanVideo 1.5 from text. A Qwen2.5-VL text encoder and one of letters (ByT5), a diffusion
transformer of two streams, a causal video VAE."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import video
from omnic.catalog.diffusers import Index
from omnic.catalog.part import CatalogError, Part, Port
from omnic.catalog.pictures import layer_elements, t5_elements
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS, _LETTERS = 1000, 256
_SKIPPED = 2  # last layers of the language model, whose states are not used
_WIDEST = 13  # elements of a token that one forward holds at once, in multiples of the model's width; measured


def parts(index: Index) -> tuple[Part, ...]:
    encoder, letters = index["text_encoder"], index["text_encoder_2"]
    transformer, vae, guider = index["transformer"], index["vae"], index["guider"]
    if guider.kind != "ClassifierFreeGuidance" or guider.config.get("use_original_formulation"):
        raise CatalogError(f"{index.where}: omnic cannot guide by `{guider.kind}` yet", id="not-supported-yet")
    if transformer.config.get("use_meanflow"):
        raise CatalogError(f"{index.where}: omnic does not run mean flow yet", id="not-supported-yet")
    width, channels = int(encoder.config["hidden_size"]), int(vae.config["latent_channels"])
    time, space = (int(vae.config[f"{axis}_compression_ratio"]) for axis in ("temporal", "spatial"))
    latents = d.latents(channels, time, space, space)
    multiple = space * int(transformer.config["patch_size"])
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    layers = int(encoder.config["num_hidden_layers"]) - _SKIPPED
    count = f"((frames_high - 1) / {time} + 1)"
    default = Size(1280, 720) if int(transformer.config["target_size"]) > 640 else Size(848, 480)
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": layer_elements(encoder, layers), "text_encoder_2": t5_elements(letters)},
            encoder.stored,
            hidden=3 * int(encoder.config["intermediate_size"]),
        ),
        d.denoiser(
            index,
            transformer,
            (Port("condition", Type("embeds", (width,)), origin=index.where),),
            latents,
            (
                d.size(default, multiple, 1280),
                d.frames(121, time, 241),
                d.steps(50),
                d.guidance(float(guider.config.get("guidance_scale", 7.5))),
                d.seed(),
            ),
            activation=f"2 * batch * (size_high / {multiple**2} * {count} + {_TOKENS + _LETTERS}) * {_WIDEST * inner}",
            latent_bytes=f"{8 * channels} * batch * size_high / {space**2} * {count}",
            streams=d.FRAMES,
        ),
        video.decode(index, latents, 24),
    )
