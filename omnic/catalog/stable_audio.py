"""stable_audio: Stable Audio Open. A T5 text encoder, a diffusion transformer, a VAE of waveforms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from omnic.catalog import diffusion as d
from omnic.catalog import pictures, sound
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Key, Part, Port
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Quantity

_TOKENS = 128
_TEXT = "text_projection."
# Elements held at the peak, measured: of a forward, by a token, in multiples of the transformer's width; of the
# decoder, by a sample, in multiples of its last block's channels, beside its weights, which it brings to their norms
_WIDEST, _PLAYED = 19, 5
_COPIES = 5  # of a request's latents: they, two predictions and what the solver keeps


def parts(index: Index) -> tuple[Part, ...]:
    encoder, transformer, vae = index["text_encoder"], index["transformer"], index["vae"]
    projection = index["projection_model"]
    width, inner = int(projection.config["conditioning_dim"]), _inner(transformer.config)
    hop, rate = prod(vae.config["downsampling_ratios"]), int(vae.config["sampling_rate"])
    length = int(transformer.config["sample_size"])  # latents of any sound: what is too long is cut off
    longest = length * hop / rate
    latents = d.latents(int(transformer.config["in_channels"]), hop)
    seconds = Key("seconds", Type("float"), longest, Range(1 / rate, longest), "how long the sound is",
                  field="audio_end_in_s", origin=index.where)  # fmt: skip
    decode = d.vae_decode(
        index,
        latents,
        Port("audio", Type("audio", (Quantity(rate, "Hz"),)), origin=index.where),
        activation=str(length * hop * _PLAYED * int(vae.config["decoder_channels"]) + vae.elements("decoder.")),
        keys=(sound.channels(),),
    )
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": pictures.t5_elements(encoder), "projection_model": projection.elements(_TEXT)},
            encoder.stored,
            hidden=3 * int(encoder.config["d_ff"]) + int(encoder.config["num_heads"]) * 4 * _TOKENS,
        ),
        d.denoiser(
            index,
            transformer,
            (Port("condition", Type("embeds", (width,)), origin=index.where),),
            latents,
            (seconds, d.steps(100), d.guidance(7.0), d.seed()),
            activation=f"2 * batch * {(length + _TOKENS) * _WIDEST * inner}",
            replays=True,
            compiles=False,
            latent_bytes=f"4 * batch * {_COPIES * length * int(transformer.config['in_channels'])}",
            groups={
                "transformer": transformer.elements(),
                "projection_model": projection.elements(without=(_TEXT,)),
            },
        ),
        replace(decode, doc=f"latents to {sound.MONO}"),
    )


def _inner(config: Mapping[str, Any]) -> int:
    return int(config["num_attention_heads"]) * int(config["attention_head_dim"])
