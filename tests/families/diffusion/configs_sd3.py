"""Stable Diffusion 3 and 3.5."""

from typing import Any

from tests.families.diffusion.encoders import clip_g, clip_l, kl, t5
from tests.families.diffusion.fixtures import Fixture, Held

_MEDIUM_3_5 = {
    "sample_size": 128, "num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536,
    "pos_embed_max_size": 384, "dual_attention_layers": list(range(13)), "qk_norm": "rms_norm",
}  # fmt: skip
_TINY = {
    "sample_size": 32, "patch_size": 2, "in_channels": 4, "out_channels": 4, "num_layers": 3, "attention_head_dim": 8,
    "num_attention_heads": 4, "joint_attention_dim": 72, "caption_projection_dim": 32, "pooled_projection_dim": 64,
    "pos_embed_max_size": 16, "dual_attention_layers": [0], "qk_norm": "rms_norm",
}  # fmt: skip


def components(transformer: dict[str, Any], tiny: bool = True) -> dict[str, Held]:
    scheduler = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0}
    vae = {"scaling_factor": 1.5305, "shift_factor": 0.0609, "use_quant_conv": False, "use_post_quant_conv": False}
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": clip_l(tiny, projected=True),
        "text_encoder_2": clip_g(tiny),
        "text_encoder_3": t5(tiny, 72, "F16"),
        "tokenizer": Held("transformers", "CLIPTokenizer", tensors=False),
        "tokenizer_2": Held("transformers", "CLIPTokenizer", tensors=False),
        "tokenizer_3": Held("transformers", "T5TokenizerFast", tensors=False),
        "transformer": Held("diffusers", "SD3Transformer2DModel", transformer, "F32" if tiny else "BF16"),
        "vae": kl(tiny, 4 if tiny else 16, **vae),
    }


FIXTURES = {
    "random--sd3": Fixture("StableDiffusion3Pipeline", components(_TINY)),
    "stabilityai--stable-diffusion-3.5-medium": Fixture(
        "StableDiffusion3Pipeline",
        components(_MEDIUM_3_5, tiny=False),
        license="Stability AI Community License",
        source="class defaults of diffusers, with the numbers by which its conversion script tells 3.5 medium "
        "(transformer); published configs of CLIP ViT-L/14, OpenCLIP ViT-bigG/14 and T5 v1.1 XXL; scheduler and VAE "
        "as released",
    ),
}
