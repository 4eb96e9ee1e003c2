"""FLUX.2: [klein] and [dev]."""

from typing import Any

from tests.families.diffusion.encoders import qwen3
from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import WORDS

_SCHEDULER = {
    "_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256, "base_shift": 0.5,
    "max_image_seq_len": 4096, "max_shift": 1.15, "num_train_timesteps": 1000, "shift": 3.0,
    "time_shift_type": "exponential", "use_dynamic_shifting": True,
}  # fmt: skip


def mistral(tiny: bool) -> Held:
    """Mistral Small 3.2, 24 B, or a tiny one."""
    text: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": WORDS, "max_position_embeddings": 2048,
        "bos_token_id": None, "eos_token_id": None,
    } if tiny else {
        "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5, "rope_parameters": {"rope_type": "default", "rope_theta": 1e9},
    }  # fmt: skip
    text |= {"model_type": "mistral", "sliding_window": None}
    vision = {
        "model_type": "pixtral", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "image_size": 28, "patch_size": 14,
    } if tiny else {
        "model_type": "pixtral", "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16,
        "intermediate_size": 4096, "image_size": 1540, "patch_size": 14,
    }  # fmt: skip
    config = {"model_type": "mistral3", "text_config": text, "vision_config": vision, "image_token_id": 10,
              "spatial_merge_size": 1 if tiny else 2}  # fmt: skip
    return Held("transformers", "Mistral3ForConditionalGeneration", config, "F32" if tiny else "BF16")


def components(tiny: bool, encoder: Held, transformer: dict[str, Any]) -> dict[str, Held]:
    stored = "F32" if tiny else "BF16"
    vae = {
        "block_out_channels": [4, 8], "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2, "latent_channels": 4, "norm_num_groups": 1, "layers_per_block": 1,
        "sample_size": 32,
    } if tiny else {}  # fmt: skip
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", _SCHEDULER, tensors=False),
        "text_encoder": encoder,
        "tokenizer": Held("transformers", "Qwen2Tokenizer", tensors=False),
        "transformer": Held("diffusers", "Flux2Transformer2DModel", transformer, stored),
        "vae": Held("diffusers", "AutoencoderKLFlux2", vae, stored),
    }


_TINY = {
    "in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2,
    "joint_attention_dim": 96, "timestep_guidance_channels": 32, "axes_dims_rope": [4, 4, 4, 4],
}  # fmt: skip
_KLEIN_4B = {
    "num_layers": 5, "num_single_layers": 20, "num_attention_heads": 24, "joint_attention_dim": 7680,
    "guidance_embeds": False,
}  # fmt: skip

FIXTURES = {
    "random--flux2": Fixture(
        "Flux2KleinPipeline",
        components(True, qwen3(True, "Qwen3ForCausalLM", 5), _TINY | {"guidance_embeds": False}),
        settings={"is_distilled": True},
    ),
    "random--flux2_base": Fixture(
        "Flux2KleinPipeline",
        components(True, qwen3(True, "Qwen3ForCausalLM", 5), _TINY | {"guidance_embeds": False}),
        settings={"is_distilled": False},
    ),
    "random--flux2_dev": Fixture("Flux2Pipeline", components(True, mistral(True), _TINY)),
    "black-forest-labs--FLUX.2-klein-4B": Fixture(
        "Flux2KleinPipeline",
        components(False, qwen3(False, "Qwen3ForCausalLM"), _KLEIN_4B),
        source="class defaults of diffusers, with the numbers by which its conversion script tells the 4 B "
        "(transformer) and as they are (VAE); published config of Qwen3-4B (text encoder); scheduler as released",
        settings={"is_distilled": True},
    ),
    "black-forest-labs--FLUX.2-dev": Fixture(
        "Flux2Pipeline",
        components(False, mistral(False), {}),
        license="FLUX [dev] Non-Commercial License v2.0",
        source="class defaults of diffusers (transformer, VAE); published config of Mistral-Small-3.2-24B (text "
        "encoder); scheduler as released",
    ),
}
