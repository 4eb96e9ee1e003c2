"""Stable Diffusion XL."""

from tests.families.diffusion.encoders import clip_g, clip_l, kl
from tests.families.diffusion.fixtures import Fixture, Held


def components(tiny: bool) -> dict[str, Held]:
    unet = {
        "sample_size": 32, "in_channels": 4, "out_channels": 4, "block_out_channels": [4, 8], "layers_per_block": 1,
        "norm_num_groups": 1, "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "attention_head_dim": [2, 4],
        "transformer_layers_per_block": [1, 1], "cross_attention_dim": 64, "addition_time_embed_dim": 8,
        "projection_class_embeddings_input_dim": 80,
    } if tiny else {
        "sample_size": 128, "block_out_channels": [320, 640, 1280],
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
        "attention_head_dim": [5, 10, 20], "transformer_layers_per_block": [1, 2, 10], "cross_attention_dim": 2048,
        "addition_time_embed_dim": 256, "projection_class_embeddings_input_dim": 2816,
    }  # fmt: skip
    unet |= {"addition_embed_type": "text_time", "use_linear_projection": True}
    scheduler = {
        "_class_name": "EulerDiscreteScheduler", "beta_end": 0.012, "beta_schedule": "scaled_linear",
        "beta_start": 0.00085, "interpolation_type": "linear", "num_train_timesteps": 1000,
        "prediction_type": "epsilon", "steps_offset": 1, "timestep_spacing": "leading", "use_karras_sigmas": False,
    }  # fmt: skip
    return {
        "scheduler": Held("diffusers", "EulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": clip_l(tiny),
        "text_encoder_2": clip_g(tiny),
        "tokenizer": Held("transformers", "CLIPTokenizer", tensors=False),
        "tokenizer_2": Held("transformers", "CLIPTokenizer", tensors=False),
        "unet": Held("diffusers", "UNet2DConditionModel", unet, "F32" if tiny else "F16"),
        "vae": kl(tiny, 4, "F16", scaling_factor=0.13025, force_upcast=True),
    }


FIXTURES = {
    "random--sdxl": Fixture(
        "StableDiffusionXLPipeline", components(True), settings={"force_zeros_for_empty_prompt": True}
    ),
    "stabilityai--stable-diffusion-xl-base-1.0": Fixture(
        "StableDiffusionXLPipeline",
        components(False),
        license="CreativeML Open RAIL++-M",
        source="the configs by which diffusers' conversion script builds it (UNet, VAE); published configs of CLIP "
        "ViT-L/14 and OpenCLIP ViT-bigG/14; scheduler as released",
        settings={"force_zeros_for_empty_prompt": True},
    ),
}
