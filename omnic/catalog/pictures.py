"""What the families of pictures share: the VAE of single pictures, and what is loaded of their encoders."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog import diffusion as d
from omnic.catalog.diffusers import Component, Index
from omnic.catalog.part import Key, Part
from omnic.contract.types import Type


def kl_vae(index: Index, size: Key, only: str | None = None) -> tuple[Part, Part]:
    """Decode and encode of an `AutoencoderKL`, a VAE of single pictures. `size` is the denoiser's key; `only` the one
    precision it can be held in, where it has no choice."""
    blocks = index["vae"].config["block_out_channels"]
    activation = f"size_high * {4 * int(blocks[min(1, len(blocks) - 1)])}"  # the widest block at full size
    made = kl_latents(index)
    decode = d.vae_decode(index, made, d.image(index), activation)
    encode = d.vae_encode(index, made, (size,), activation)
    return (decode, encode) if only is None else (_held(decode, only), _held(encode, only))


def kl_latents(index: Index) -> Type:
    """The latents of an `AutoencoderKL`."""
    factor = kl_factor(index)
    return d.latents(int(index["vae"].config["latent_channels"]), factor, factor)


def kl_factor(index: Index) -> int:
    """Pixels of width, and of height, a latent of an `AutoencoderKL`."""
    return int(2 ** (len(index["vae"].config["block_out_channels"]) - 1))


def clip_elements(component: Component) -> int:
    """What is loaded of a CLIP text model: old checkpoints save the numbers of its positions, too."""
    return component.elements(without=("embeddings.position_ids", "text_model.embeddings.position_ids"))


def t5_elements(component: Component) -> int:
    """What is loaded of a T5 encoder: its embeddings once, under whichever name."""
    return component.elements(without=("encoder.embed_tokens.",) if "shared.weight" in component.tensors else ())


def layer_elements(component: Component, layers: int, prefixes: tuple[str, ...] = ("model.", "")) -> int:
    """What is loaded of a language model whose states after `layers` of its layers are used: its embeddings and those
    layers, and no norm after them."""
    prefix = next(p for p in prefixes if f"{p}embed_tokens.weight" in component.tensors)
    of_one = {n: t for n, t in component.tensors.items() if n.startswith(f"{prefix}layers.*.")}
    held = replace(component, tensors={n: (layers, shape) for n, (_, shape) in of_one.items()})
    return held.elements() + component.elements(f"{prefix}embed_tokens.")


def _held(part: Part, precision: str) -> Part:
    cost = part.cost_as(precision)
    return replace(part, cost=cost, costs=((precision, cost),))
