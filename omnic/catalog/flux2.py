"""flux2: FLUX.2. A language model reads, a transformer of two streams draws, a VAE takes its latents four at a time."""

from __future__ import annotations

from omnic.catalog import diffusion as d
from omnic.catalog import pictures
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Part, Port
from omnic.contract.types import Type
from omnic.expr import Size

_TOKENS = 512
_DISTILLED = "how closely to follow the prompt, as the model was distilled to"
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")


def parts(index: Index) -> tuple[Part, ...]:
    """[dev] reads with Mistral and was distilled to follow a scale; [klein] reads with Qwen3 and was distilled to few
    steps, or, as released to be trained further, neither. A picture that is given is seen beside what is made."""
    transformer, encoder = index["transformer"], index["text_encoder"]
    text = encoder.config.get("text_config", encoder.config)
    width = 3 * int(text["hidden_size"])
    inner = int(transformer.config["num_attention_heads"]) * int(transformer.config["attention_head_dim"])
    follows = bool(transformer.config.get("guidance_embeds", True))
    guided = not follows and not index.settings.get("is_distilled", False)
    vae, step = index["vae"], 2 * pictures.kl_factor(index)
    latents = d.latents(4 * int(vae.config["latent_channels"]), step, step)
    size, patches = d.size(Size(1024, 1024), step), f"size_high / {step**2}"
    most = (1 << 20) // step**2  # patches of a picture that is given
    guidance = (d.guidance(4.0, doc=_DISTILLED),) if follows else (d.guidance(4.0),) if guided else ()
    pixels = 4 * int(vae.config["block_out_channels"][1])  # the widest block at full size
    return (
        d.text_encoder(
            index,
            width,
            _TOKENS,
            {"text_encoder": pictures.layer_elements(encoder, _layers(encoder), _PREFIXES)},
            encoder.stored,
            negative=guided,
            hidden=3 * int(text["intermediate_size"]),
        ),
        d.denoiser(
            index,
            transformer,
            (
                Port("condition", Type("embeds", (width,)), origin=index.where),
                Port("reference", latents, required=False, origin=index.where),
            ),
            latents,
            (size, d.steps(4 if not follows and not guided else 50), *guidance, d.seed()),
            activation=f"{2 if guided else 1} * batch * ({patches} + {most + _TOKENS}) * {14 * inner}",
            replays=True,
            latent_bytes=f"4 * batch * {int(transformer.config['in_channels'])} * ({patches} + {most})",
        ),
        d.vae_decode(index, latents, d.image(index), activation=f"size_high * {pixels}"),
        d.vae_encode(index, latents, (), activation=f"{(1 << 20) * pixels}"),
    )


def _layers(encoder: Component) -> int:
    """Of the text encoder's layers, those up to three quarters of the way."""
    text = encoder.config.get("text_config", encoder.config)
    return int(text["num_hidden_layers"]) // 4 * 3
