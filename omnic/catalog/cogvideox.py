"""cogvideox: CogVideoX (2 B, 5 B and 1.5) from text. A T5 text encoder, a diffusion transformer, a causal video VAE."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Part, Port
from omnic.catalog.pictures import t5_elements
from omnic.contract.types import Type
from omnic.expr import Size

_WIDEST = 13  # elements of a token that one forward holds at once, in multiples of the model's width; measured
_DECODED = 182  # elements a pixel that a decode holds at its peak, in multiples of the channels there; measured


def parts(index: Index) -> tuple[Part, ...]:
    encoder, transformer, vae = index["text_encoder"], index["transformer"], index["vae"]
    config = transformer.config
    width, channels = int(encoder.config["d_model"]), int(vae.config["latent_channels"])
    time, space = int(vae.config["temporal_compression_ratio"]), 2 ** (len(vae.config["block_out_channels"]) - 1)
    latents = d.latents(channels, time, space, space)
    multiple, tokens = space * int(config["patch_size"]), int(config["max_text_seq_length"])
    later = config.get("patch_size_t") is not None  # CogVideoX 1.5
    default, frames, fps = (Size(1360, 768), 81, 16) if later else (Size(720, 480), 49, 8)
    count = f"(ceil(((frames_high - 1) / {time} + 1) / {int(config.get('patch_size_t') or 1)}))"
    inner = int(config["num_attention_heads"]) * int(config["attention_head_dim"])
    return (
        d.text_encoder(
            index, width, tokens, {"text_encoder": t5_elements(encoder)}, encoder.stored,
            hidden=3 * int(encoder.config["d_ff"]),
        ),
        d.denoiser(
            index,
            transformer,
            (Port("condition", Type("embeds", (width,)), origin=index.where),),
            latents,
            (
                d.size(default, multiple, 1360),
                d.frames(frames, time, 2 * frames - 1),
                d.steps(50),
                d.guidance(6.0),
                d.seed(),
            ),
            activation=f"2 * batch * (size_high / {multiple**2} * {count} + {tokens}) * {_WIDEST * inner}",
            replays=True,
            compiles=False,
            latent_bytes=f"{8 * channels} * batch * size_high / {space**2} * ((frames_high - 1) / {time} + 2)",
        ),
        d.vae_decode(
            index, latents, d.video(index, fps),
            activation=f"size_high * {_DECODED * int(vae.config['block_out_channels'][0])}",
        ),
    )  # fmt: skip
