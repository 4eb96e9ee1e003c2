"""Qwen-Image."""

from tests.families.diffusion.fixtures import Fixture, Held

_SHIFT = {
    # of the released scheduler: exponential shifting over 256 to 8,192 tokens
    "_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256, "base_shift": 0.5,
    "invert_sigmas": False, "max_image_seq_len": 8192, "max_shift": 0.9, "num_train_timesteps": 1000, "shift": 1.0,
    "shift_terminal": 0.02, "stochastic_sampling": False, "time_shift_type": "exponential",
    "use_beta_sigmas": False, "use_dynamic_shifting": True, "use_exponential_sigmas": False, "use_karras_sigmas": False,
}  # fmt: skip


def text_encoder(tiny: bool) -> Held:
    """Qwen2.5-VL, 7 B or tiny."""
    if tiny:
        text = {
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "vocab_size": 400, "max_position_embeddings": 2048,
            "bos_token_id": None, "eos_token_id": None,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e6},
        }  # fmt: skip
        vision = {
            "depth": 2, "hidden_size": 32, "out_hidden_size": 32, "intermediate_size": 24, "num_heads": 4,
            "patch_size": 14, "spatial_merge_size": 2, "fullatt_block_indexes": [0], "window_size": 56,
        }  # fmt: skip
        marks = {"image_token_id": 7, "video_token_id": 8, "vision_start_token_id": 4, "vision_end_token_id": 5}
        stored = "F32"
    else:
        text = {
            "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 128000,
            "rope_parameters": {"rope_type": "default", "mrope_section": [16, 24, 24], "rope_theta": 1e6},
        }  # fmt: skip
        vision = {"hidden_size": 1280, "out_hidden_size": 3584}
        marks = {}
        stored = "BF16"
    config = {"model_type": "qwen2_5_vl", "text_config": text, "vision_config": vision, "tie_word_embeddings": False}
    return Held("transformers", "Qwen2_5_VLForConditionalGeneration", config | marks, stored)


def components(tiny: bool) -> dict[str, Held]:
    transformer = {
        "patch_size": 2, "in_channels": 16, "out_channels": 4, "num_layers": 2, "attention_head_dim": 16,
        "num_attention_heads": 2, "joint_attention_dim": 32, "axes_dims_rope": [8, 4, 4],
    } if tiny else {}  # fmt: skip
    vae = {
        "base_dim": 8, "z_dim": 4, "dim_mult": [1, 2, 4], "num_res_blocks": 1, "temperal_downsample": [False, True],
        "latents_mean": [0.1, -0.2, 0.3, 0.0], "latents_std": [1.0, 1.5, 0.8, 1.2],
    } if tiny else {}  # fmt: skip
    stored = "F32" if tiny else "BF16"
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", _SHIFT, tensors=False),
        "text_encoder": text_encoder(tiny),
        "tokenizer": Held("transformers", "Qwen2Tokenizer", tensors=False),
        "transformer": Held("diffusers", "QwenImageTransformer2DModel", transformer, stored),
        "vae": Held("diffusers", "AutoencoderKLQwenImage", vae, stored),
    }


FIXTURES = {
    "random--qwen_image": Fixture("QwenImagePipeline", components(True)),
    "Qwen--Qwen-Image": Fixture(
        "QwenImagePipeline",
        components(False),
        source="class defaults of diffusers (transformer, VAE); published config of Qwen2.5-VL-7B (text encoder)",
    ),
}
