"""sdxl: Stable Diffusion XL. Two CLIPs, a UNet, a VAE of 4 channels that overflows in half precision."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Index
from omnic.catalog.part import CatalogError, Part, Port
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS = 77


def parts(index: Index) -> tuple[Part, ...]:
    unet, encoder, vae = index["unet"], index["text_encoder_2"], index["vae"]
    if unet.config.get("time_cond_proj_dim") is not None:
        raise CatalogError(f"{index.where}: omnic lacks UNets that take the scale of guidance as an input",
                           id="not-supported-yet")  # fmt: skip
    width = int(unet.config["cross_attention_dim"])
    factor = pictures.kl_factor(index)
    size, latents = d.size(Size(1024, 1024), factor, least=8 * factor), pictures.kl_latents(index)
    places = f"size_high / {factor**2}"
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {name: pictures.clip_elements(index[name]) for name in ("text_encoder", "text_encoder_2")},
            encoder.stored,
            hidden=3 * int(encoder.config["intermediate_size"]),
        ),
        d.denoiser(
            index,
            unet,
            (
                Port("condition", Type("embeds", (width,)), origin=index.where),
                Port("latents", latents, required=False, origin=index.where),
            ),
            latents,
            (size, d.steps(50), d.guidance(5.0), d.strength(), d.seed()),
            activation=f"2 * batch * {places} * {24 * int(unet.config['block_out_channels'][0])}",
            replays=True,
            latent_bytes=f"4 * batch * {int(unet.config['in_channels'])} * {places}",
        ),
        *pictures.kl_vae(index, size, only="fp32" if vae.config.get("force_upcast", True) else None),
    )
