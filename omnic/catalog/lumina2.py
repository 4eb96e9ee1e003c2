"""lumina2: Lumina-Image 2.0. A Gemma 2 text encoder, a diffusion transformer of one stream, a VAE of 16 channels."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Key, Part, Port
from omnic.contract.domains import Range
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS = 256


def parts(index: Index) -> tuple[Part, ...]:
    transformer, encoder = index["transformer"], index["text_encoder"]
    width, layers = int(encoder.config["hidden_size"]), int(encoder.config["num_hidden_layers"])
    step = 2 * pictures.kl_factor(index)
    size, latents = d.size(Size(1024, 1024), step), pictures.kl_latents(index)
    patches = f"size_high / {step**2}"
    until = Key("truncation", Type("float"), 1.0, Range(0.0, 1.0), "part of the steps, from the first, that is guided",
                field="cfg_trunc_ratio")  # fmt: skip
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": pictures.layer_elements(encoder, layers - 1)},
            encoder.stored,
            hidden=3 * int(encoder.config["intermediate_size"]),
        ),
        d.denoiser(
            index,
            transformer,
            (
                Port("condition", Type("embeds", (width,)), origin=index.where),
                Port("latents", latents, required=False, origin=index.where),
            ),
            latents,
            (size, d.steps(30), d.guidance(4.0), until, d.strength(), d.seed()),
            activation=f"2 * batch * ({patches} + {_TOKENS}) * {12 * int(transformer.config['hidden_size'])}",
            latent_bytes=f"4 * batch * {4 * int(transformer.config['in_channels'])} * {patches}",
        ),
        *pictures.kl_vae(index, size),
    )
