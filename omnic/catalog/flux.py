"""flux: FLUX.1. CLIP's pooled text and T5, a diffusion transformer of two streams, a VAE of 16 channels."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Index
from omnic.catalog.part import Part, Port
from omnic.contract.types import Type
from omnic.expr import Size

_DISTILLED = "how closely to follow the prompt, as the model was distilled to"
_TRUE = "guidance by a second forward that knows what to keep away from; 1 leaves it out"


def parts(index: Index) -> tuple[Part, ...]:
    """FLUX.1 [dev] was distilled to follow a scale of guidance and reads 512 tokens; [schnell] was distilled to few
    steps, takes no scale, and reads 256."""
    transformer, encoder = index["transformer"], index["text_encoder_2"]
    follows = bool(transformer.config.get("guidance_embeds", False))
    tokens = 512 if follows else 256
    width = int(transformer.config["joint_attention_dim"])
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    step = 2 * pictures.kl_factor(index)
    size = d.size(Size(1024, 1024), step)
    latents = pictures.kl_latents(index)
    patches = f"size_high / {step**2}"
    keys = (
        size,
        d.steps(28 if follows else 4),
        *((d.guidance(3.5, doc=_DISTILLED),) if follows else ()),
        d.guidance(1.0, name="true_guidance", field="true_cfg_scale", doc=_TRUE),
        d.strength(),
        d.seed(),
    )
    return (
        d.text_encoder(
            index,
            width,
            tokens,
            {
                "text_encoder": pictures.clip_elements(index["text_encoder"]),
                "text_encoder_2": pictures.t5_elements(encoder),
            },
            encoder.stored,
            hidden=3 * int(encoder.config["d_ff"]),
        ),
        d.denoiser(
            index,
            transformer,
            (
                Port("condition", Type("embeds", (width,)), origin=index.where),
                Port("latents", latents, required=False, origin=index.where),
            ),
            latents,
            keys,
            activation=f"2 * batch * ({patches} + {tokens}) * {14 * inner}",
            replays=True,
            latent_bytes=f"4 * batch * {int(transformer.config['in_channels'])} * {patches}",
            caches=d.caches(patches, tokens, inner, first_block=0.1, tea=0.25),
        ),
        *pictures.kl_vae(index, size),
    )
