"""Configs of the text encoders and VAEs that several families have, as released and tiny."""

from __future__ import annotations

from typing import Any

from tests.families.diffusion.fixtures import Held
from tests.families.diffusion.tokenizers import CLIP_WORDS, WORDS


def clip_l(tiny: bool, projected: bool = False, width: int = 32) -> Held:
    """CLIP ViT-L/14's text model, or a tiny one. Old configs say that text ends with token 2, and mean the highest."""
    sizes = {
        "vocab_size": CLIP_WORDS, "hidden_size": width, "intermediate_size": 37, "num_hidden_layers": 2,
        "num_attention_heads": 4, "projection_dim": width,
    } if tiny else {
        "vocab_size": 49408, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "projection_dim": 768,
    }  # fmt: skip
    return _clip(sizes | {"hidden_act": "quick_gelu"}, tiny, projected)


def clip_g(tiny: bool, width: int = 32) -> Held:
    """OpenCLIP ViT-bigG/14's text model, or a tiny one."""
    sizes = {
        "vocab_size": CLIP_WORDS, "hidden_size": width, "intermediate_size": 37, "num_hidden_layers": 3,
        "num_attention_heads": 4, "projection_dim": width,
    } if tiny else {
        "vocab_size": 49408, "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
        "num_attention_heads": 20, "projection_dim": 1280,
    }  # fmt: skip
    return _clip(sizes | {"hidden_act": "gelu"}, tiny, True)


def _clip(sizes: dict[str, Any], tiny: bool, projected: bool) -> Held:
    kind = "CLIPTextModelWithProjection" if projected else "CLIPTextModel"
    marks = {"model_type": "clip_text_model", "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    return Held("transformers", kind, sizes | marks, "F32" if tiny else "F16")


def t5(tiny: bool, width: int = 32, stored: str = "BF16") -> Held:
    """The encoder of T5 v1.1 XXL, or a tiny one."""
    sizes = {
        "vocab_size": WORDS, "d_model": width, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
    } if tiny else {
        "vocab_size": 32128, "d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64,
    }  # fmt: skip
    config = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    return Held("transformers", "T5EncoderModel", config | sizes, "F32" if tiny else stored)


def kl(tiny: bool, channels: int, stored: str = "BF16", **differs: Any) -> Held:
    """`AutoencoderKL` of the size that all released models have, or a tiny one that scales 2 to 1."""
    blocks = 2 if tiny else 4
    sizes = {
        "block_out_channels": [4, 8] if tiny else [128, 256, 512, 512],
        "down_block_types": ["DownEncoderBlock2D"] * blocks,
        "up_block_types": ["UpDecoderBlock2D"] * blocks,
        "layers_per_block": 1 if tiny else 2,
        "latent_channels": channels,
        "norm_num_groups": 1 if tiny else 32,
        "sample_size": 32 if tiny else 1024,
    }
    return Held("diffusers", "AutoencoderKL", sizes | differs, "F32" if tiny else stored)


def qwen3(tiny: bool, kind: str, layers: int = 3, width: int = 32) -> Held:
    """Qwen3 4B, or a tiny one."""
    sizes = {
        "hidden_size": width, "intermediate_size": 2 * width, "num_hidden_layers": layers, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": WORDS, "max_position_embeddings": 2048,
        "bos_token_id": None, "eos_token_id": None,
    } if tiny else {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    }  # fmt: skip
    config = {"model_type": "qwen3", "tie_word_embeddings": True, "rms_norm_eps": 1e-6}
    return Held("transformers", kind, config | sizes, "F32" if tiny else "BF16")
