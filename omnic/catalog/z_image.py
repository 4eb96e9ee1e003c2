"""z_image: Z-Image. A Qwen3 text encoder, a diffusion transformer of one stream, a VAE of 16 channels."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Part, Port
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS = 512  # of a prompt within its template
_GUIDANCE = "how much of the way from what to keep away from to the prompt to add once more; 0 adds nothing"


def parts(index: Index) -> tuple[Part, ...]:
    transformer, encoder = index["transformer"], index["text_encoder"]
    width, layers = int(encoder.config["hidden_size"]), int(encoder.config["num_hidden_layers"])
    inner = int(transformer.config["dim"])
    step = 2 * pictures.kl_factor(index)
    size, latents = d.size(Size(1024, 1024), step), pictures.kl_latents(index)
    patches = f"size_high / {step**2}"
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
            (size, d.steps(50), d.guidance(5.0, doc=_GUIDANCE), d.strength(), d.seed()),
            activation=f"2 * batch * ({patches} + {_TOKENS}) * {12 * inner}",
            latent_bytes=f"4 * batch * {4 * int(transformer.config['in_channels'])} * {patches}",
            caches=d.caches(f"({patches} + {_TOKENS})", 0, inner, first_block=0.1),
        ),
        *pictures.kl_vae(index, size),
    )
