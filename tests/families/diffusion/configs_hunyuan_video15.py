"""HunyuanVideo 1.5: from text, at 480 lines."""

from typing import Any

from tests.families.diffusion.configs_qwen_image import text_encoder
from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import WORDS


def _components(tiny: bool) -> dict[str, Held]:
    stored = "F32" if tiny else "BF16"
    transformer: dict[str, Any] = {"task_type": "t2v"}
    vae: dict[str, Any] = {}
    glyphs = {"d_model": 1472, "d_ff": 3584, "num_layers": 12, "num_heads": 6, "d_kv": 64, "vocab_size": 1510}
    if tiny:
        transformer |= {
            "in_channels": 9, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2,
            "num_refiner_layers": 1, "mlp_ratio": 2.0, "text_embed_dim": 32, "text_embed_2_dim": 24,
            "image_embed_dim": 12, "rope_axes_dim": [4, 4, 8], "target_size": 16,
        }  # fmt: skip
        vae = {
            "latent_channels": 4, "block_out_channels": [8, 16, 16], "layers_per_block": 1,
            "spatial_compression_ratio": 4, "temporal_compression_ratio": 4,
        }  # fmt: skip
        glyphs = {"d_model": 24, "d_ff": 37, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": WORDS}
    text = {**text_encoder(tiny).config["text_config"], "model_type": "qwen2_5_vl_text"}
    if tiny:
        text["num_hidden_layers"] = 4
    scheduler = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 5.0}
    glyphs |= {"model_type": "t5", "feed_forward_proj": "gated-gelu"}
    return {
        "guider": Held("diffusers", "ClassifierFreeGuidance", {"guidance_scale": 6.0}, tensors=False),
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": Held("transformers", "Qwen2_5_VLTextModel", text, stored),
        "text_encoder_2": Held("transformers", "T5EncoderModel", glyphs, stored),
        "tokenizer": Held("transformers", "Qwen2Tokenizer", tensors=False),
        "tokenizer_2": Held("transformers", "ByT5Tokenizer", tensors=False),
        "transformer": Held("diffusers", "HunyuanVideo15Transformer3DModel", transformer, stored),
        "vae": Held("diffusers", "AutoencoderKLHunyuanVideo15", vae, stored),
    }


FIXTURES = {
    "random--hunyuan_video15": Fixture("HunyuanVideo15Pipeline", _components(True)),
    "hunyuanvideo-community--HunyuanVideo-1.5-Diffusers-480p_t2v": Fixture(
        "HunyuanVideo15Pipeline", _components(False), license="Tencent Hunyuan Community License",
        source="class defaults of diffusers (transformer, VAE); diffusers' conversion script (scheduler, guidance); "
        "published configs of Qwen2.5-VL-7B and of byt5-small with the tokens of Glyph-SDXL-v2",
    ),
}  # fmt: skip
