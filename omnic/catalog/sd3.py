"""sd3: Stable Diffusion 3 and 3.5. Two CLIPs and T5, a diffusion transformer of two streams, a VAE of 16 channels."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Part, Port
from omnic.contract.types import Type
from omnic.expr import Size

_CLIP_TOKENS, _T5_TOKENS = 77, 256


def parts(index: Index) -> tuple[Part, ...]:
    """T5, the largest encoder, may be left out of a checkpoint; then a prompt has CLIP's 77 tokens."""
    transformer, encoder = index["transformer"], index["text_encoder_2"]
    width = int(transformer.config["joint_attention_dim"])
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    factor = pictures.kl_factor(index)
    step = factor * int(transformer.config["patch_size"])
    most = min(2048, step * int(transformer.config["pos_embed_max_size"]))
    size, latents = d.size(Size(min(1024, most), min(1024, most)), step, most), pictures.kl_latents(index)
    tokens, patches = _CLIP_TOKENS + _T5_TOKENS, f"size_high / {step**2}"
    groups = {name: pictures.clip_elements(index[name]) for name in ("text_encoder", "text_encoder_2")}
    hidden = 3 * int(encoder.config["intermediate_size"])
    if "text_encoder_3" in index:
        encoder = index["text_encoder_3"]
        groups["text_encoder_3"] = pictures.t5_elements(encoder)
        hidden = 3 * int(encoder.config["d_ff"])
    return (
        d.text_encoder(index, width, tokens, groups, encoder.stored, hidden=hidden),
        d.denoiser(
            index,
            transformer,
            (
                Port("condition", Type("embeds", (width,)), origin=index.where),
                Port("latents", latents, required=False, origin=index.where),
            ),
            latents,
            (size, d.steps(28), d.guidance(7.0), d.strength(), d.seed()),
            activation=f"2 * batch * ({patches} + {tokens}) * {14 * inner}",
            replays=True,
            latent_bytes=f"4 * batch * {int(transformer.config['in_channels'])} * size_high / {factor**2}",
        ),
        *pictures.kl_vae(index, size),
    )
