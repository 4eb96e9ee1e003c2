"""LTX-2."""

from typing import Any

from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import WORDS

_SCHEDULER = {
    "_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 1024, "base_shift": 0.95,
    "max_image_seq_len": 4096, "max_shift": 2.05, "num_train_timesteps": 1000, "shift": 1.0, "shift_terminal": 0.1,
    "time_shift_type": "exponential", "use_dynamic_shifting": True,
}  # fmt: skip


def gemma3(tiny: bool) -> Held:
    """Gemma 3 12 B, or a tiny one."""
    text: dict[str, Any] = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": WORDS, "max_position_embeddings": 2048,
        "sliding_window": 64, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
        "layer_types": ["sliding_attention", "full_attention"],
    } if tiny else {
        "hidden_size": 3840, "intermediate_size": 15360, "num_hidden_layers": 48, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
        "sliding_window": 1024, "query_pre_attn_scalar": 256,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "image_size": 28, "patch_size": 14,
    } if tiny else {
        "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        "image_size": 896, "patch_size": 14,
    }  # fmt: skip
    config = {
        "model_type": "gemma3", "text_config": {"model_type": "gemma3_text"} | text,
        "vision_config": {"model_type": "siglip_vision_model"} | vision, "mm_tokens_per_image": 4 if tiny else 256,
    } | ({"image_token_index": 399, "boi_token_index": 397, "eoi_token_index": 398} if tiny else {})  # fmt: skip
    return Held("transformers", "Gemma3ForConditionalGeneration", config, "F32" if tiny else "BF16")


def components(tiny: bool) -> dict[str, Held]:
    stored = "F32" if tiny else "BF16"
    transformer = {
        "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 16,
        "cross_attention_dim": 32, "audio_in_channels": 8, "audio_out_channels": 8, "audio_num_attention_heads": 2,
        "audio_attention_head_dim": 8, "audio_cross_attention_dim": 16, "num_layers": 2, "caption_channels": 32,
    } if tiny else {}  # fmt: skip
    one = {"num_attention_heads": 4, "attention_head_dim": 8, "num_layers": 1, "num_learnable_registers": 8}
    connectors = {
        "caption_channels": 32, "text_proj_in_factor": 3,
        **{f"{of}_connector_{name}": value for of in ("video", "audio") for name, value in one.items()},
    } if tiny else {}  # fmt: skip
    vae = {
        "latent_channels": 4, "block_out_channels": [4, 8, 16, 32], "decoder_block_out_channels": [8, 16, 32],
        "layers_per_block": [1, 1, 1, 1, 1], "decoder_layers_per_block": [1, 1, 1, 1],
    } if tiny else {}  # fmt: skip
    sound = {"base_channels": 8, "latent_channels": 2, "mel_bins": 16, "num_res_blocks": 1} if tiny else {}
    vocoder = {
        "in_channels": 32, "hidden_channels": 16, "upsample_kernel_sizes": [17, 18], "upsample_factors": [15, 16],
        "resnet_kernel_sizes": [3], "resnet_dilations": [[1, 3]],
    } if tiny else {}  # fmt: skip
    split = {"rope_type": "split"}
    ratios = {"spatial_compression_ratio": 32, "temporal_compression_ratio": 8, "decoder_causal": False}
    return {
        "audio_vae": Held("diffusers", "AutoencoderKLLTX2Audio", sound, stored),
        "connectors": Held("ltx2", "LTX2TextConnectors", connectors | split, stored),
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", _SCHEDULER, tensors=False),
        "text_encoder": gemma3(tiny),
        "tokenizer": Held("transformers", "GemmaTokenizerFast", tensors=False),
        "transformer": Held("diffusers", "LTX2VideoTransformer3DModel", transformer | split, stored),
        "vae": Held("diffusers", "AutoencoderKLLTX2Video", vae | ratios, stored),
        "vocoder": Held("ltx2", "LTX2Vocoder", vocoder, stored),
    }


FIXTURES = {
    "random--ltx2": Fixture("LTX2Pipeline", components(True)),
    "Lightricks--LTX-2": Fixture(
        "LTX2Pipeline",
        components(False),
        license="LTX-2 Community License",
        source="class defaults of diffusers, with the sizes that its conversion script has of LTX-2.0; written down, "
        "and not held against the repository: scheduler, kind of positions, text encoder (Gemma 3 12 B)",
    ),
}
