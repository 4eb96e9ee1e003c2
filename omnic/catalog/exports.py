"""Which parts can become engines ahead of time: those whose modules are exported, with equal results, by tests."""

from __future__ import annotations

_PARTS = {
    "bert": ("encode",),
    "cogvideox": ("text_encoder",),
    "emoji_dit": ("denoiser",),
    "flux": ("text_encoder", "denoiser", "vae_decode"),
    "flux2": ("text_encoder", "denoiser", "vae_decode"),
    "hunyuan_video15": ("text_encoder",),
    "lumina2": ("text_encoder", "vae_decode"),
    "qwen_image": ("text_encoder", "denoiser", "vae_decode"),
    "sd3": ("text_encoder", "denoiser", "vae_decode"),
    "sdxl": ("text_encoder", "denoiser", "vae_decode"),
    "stable_audio": ("text_encoder", "denoiser", "vae_decode"),
    "wan": ("text_encoder", "denoiser", "vae_decode"),
    "z_image": ("text_encoder", "denoiser", "vae_decode"),
}


def exportable(family: str, part: str) -> bool:
    """Whether the modules of a part can be exported."""
    return part in _PARTS.get(family, ())


def exported() -> tuple[tuple[str, str], ...]:
    """All such parts, by family and name."""
    return tuple((family, part) for family, parts in _PARTS.items() for part in parts)
