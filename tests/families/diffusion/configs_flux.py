"""FLUX.1."""

from typing import Any

from tests.families.diffusion.encoders import clip_l, kl, t5
from tests.families.diffusion.fixtures import Fixture, Held

_LICENSE = "FLUX.1 [dev] Non-Commercial License"


def components(tiny: bool, follows: bool) -> dict[str, Held]:
    """`follows`: distilled to follow a scale of guidance ([dev])."""
    transformer: dict[str, Any] = {"guidance_embeds": follows}
    if tiny:
        transformer |= {
            "patch_size": 1, "in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16,
            "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32,
            "axes_dims_rope": [4, 4, 8],
        }  # fmt: skip
    scheduler = {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "base_image_seq_len": 256, "base_shift": 0.5,
        "max_image_seq_len": 4096, "max_shift": 1.15, "num_train_timesteps": 1000, "shift": 3.0 if follows else 1.0,
        "use_dynamic_shifting": follows,
    }  # fmt: skip
    vae = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": clip_l(tiny),
        "text_encoder_2": t5(tiny),
        "tokenizer": Held("transformers", "CLIPTokenizer", tensors=False),
        "tokenizer_2": Held("transformers", "T5TokenizerFast", tensors=False),
        "transformer": Held("diffusers", "FluxTransformer2DModel", transformer, "F32" if tiny else "BF16"),
        "vae": kl(tiny, 4 if tiny else 16, **vae),
    }


_SOURCE = (
    "class defaults of diffusers (transformer); published configs of CLIP ViT-L/14 and T5 v1.1 XXL; the VAE and "
    "scheduler as the model card's pipeline has them"
)
FIXTURES = {
    "random--flux": Fixture("FluxPipeline", components(True, True)),
    "random--flux_schnell": Fixture("FluxPipeline", components(True, False)),
    "black-forest-labs--FLUX.1-dev": Fixture("FluxPipeline", components(False, True), _LICENSE, _SOURCE),
    "black-forest-labs--FLUX.1-schnell": Fixture("FluxPipeline", components(False, False), source=_SOURCE),
}
