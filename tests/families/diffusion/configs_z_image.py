"""Z-Image."""

from tests.families.diffusion.encoders import kl, qwen3
from tests.families.diffusion.fixtures import Fixture, Held


def components(tiny: bool) -> dict[str, Held]:
    transformer = {
        "in_channels": 4, "dim": 32, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2,
        "cap_feat_dim": 32, "axes_dims": [8, 4, 4], "axes_lens": [600, 64, 64],
    } if tiny else {}  # fmt: skip
    scheduler = {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0,
        "use_dynamic_shifting": False,
    }  # fmt: skip
    vae = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": qwen3(tiny, "Qwen3Model"),
        "tokenizer": Held("transformers", "Qwen2Tokenizer", tensors=False),
        "transformer": Held("diffusers", "ZImageTransformer2DModel", transformer, "F32" if tiny else "BF16"),
        "vae": kl(tiny, 4 if tiny else 16, **vae),
    }


FIXTURES = {
    "random--z_image": Fixture("ZImagePipeline", components(True)),
    "Tongyi-MAI--Z-Image-Turbo": Fixture(
        "ZImagePipeline",
        components(False),
        source="class defaults of diffusers (transformer); published config of Qwen3-4B (text encoder); the VAE of "
        "FLUX.1, which it comes with; scheduler as released",
    ),
}
