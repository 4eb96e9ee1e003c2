"""Wan 2.2: two experts from text, two experts from a picture and text, and the 5 B that does both."""

from typing import Any

from tests.families.diffusion.fixtures import Fixture, Held

_DEFAULTS = "class defaults of diffusers (transformer, VAE 2.1)"
_CONVERSION = "diffusers' conversion script for Wan (sizes of the 5 B, VAE 2.2, scheduler, boundary)"
_TEXT = "published config of google/umt5-xxl (text encoder)"

_VAE_22 = {
    "base_dim": 160, "decoder_base_dim": 256, "z_dim": 48, "is_residual": True, "in_channels": 12, "out_channels": 12,
    "patch_size": 2, "scale_factor_spatial": 16, "scale_factor_temporal": 4,
    "latents_mean": [
        -0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557, -0.1382, 0.0542, 0.2813, 0.0891, 0.1570,
        -0.0098, 0.0375, -0.1825, -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, -0.2108, -0.2158, 0.2502, -0.2055,
        -0.0322, 0.1109, 0.1567, -0.0729, 0.0899, -0.2799, -0.1230, -0.0313, -0.1649, 0.0117, 0.0723, -0.2839,
        -0.2083, -0.0520, 0.3748, 0.0152, 0.1957, 0.1433, -0.2944, 0.3573, -0.0548, -0.1681, -0.0667,
    ],
    "latents_std": [
        0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013, 0.8158, 1.0344, 0.5894, 1.0901, 0.6885, 0.6165,
        0.8454, 0.4978, 0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, 0.8986, 0.5659, 0.7069, 0.5338, 0.4889, 0.4917,
        0.4069, 0.4999, 0.6866, 0.4093, 0.5709, 0.6065, 0.6415, 0.4944, 0.5726, 1.2042, 0.5458, 1.6887, 0.3971, 1.0600,
        0.3943, 0.5537, 0.5444, 0.4089, 0.7468, 0.7744,
    ],
}  # fmt: skip
_TINY_VAE = {
    "base_dim": 4, "z_dim": 4, "dim_mult": [1, 1, 2, 1], "num_res_blocks": 1,
    "temperal_downsample": [False, True, True], "latents_mean": [0.1, -0.2, 0.3, 0.0],
    "latents_std": [1.0, 1.5, 0.8, 1.2],
}  # fmt: skip
_TINY_VAE_22 = _TINY_VAE | {
    "decoder_base_dim": 6, "is_residual": True, "in_channels": 12, "out_channels": 12, "patch_size": 2,
    "scale_factor_spatial": 16, "dim_mult": [1, 1, 1, 1],
}  # fmt: skip


def _components(
    transformer: dict[str, Any], vae: dict[str, Any], flow_shift: float, *, experts: int, tiny: bool = False
) -> dict[str, Held]:
    scheduler = {
        "_class_name": "UniPCMultistepScheduler", "prediction_type": "flow_prediction", "use_flow_sigmas": True,
        "num_train_timesteps": 1000, "flow_shift": flow_shift,
    }  # fmt: skip
    text = {"d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "d_kv": 64, "vocab_size": 256384}
    if tiny:
        text = {"d_model": 32, "d_ff": 37, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": 400}
        transformer = {
            "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4, "text_dim": 32,
            "freq_dim": 32, "ffn_dim": 32, "num_layers": 2, "rope_max_seq_len": 32,
        } | transformer  # fmt: skip
    text |= {"model_type": "umt5", "feed_forward_proj": "gated-gelu"}
    held = Held("diffusers", "WanTransformer3DModel", transformer)
    return {
        "scheduler": Held("diffusers", "UniPCMultistepScheduler", scheduler, tensors=False),
        "text_encoder": Held("transformers", "UMT5EncoderModel", text, "F32" if tiny else "BF16"),
        "tokenizer": Held("transformers", "T5TokenizerFast", tensors=False),
        "transformer": held,
        **({"transformer_2": held} if experts == 2 else {}),
        "vae": Held("diffusers", "AutoencoderKLWan", vae),
    }


_TO_VIDEO, _FROM_PICTURE = "WanPipeline", "WanImageToVideoPipeline"
_SETTINGS = {"boundary_ratio": 0.875, "expand_timesteps": False}
_FROM_PICTURE_SETTINGS = {"boundary_ratio": 0.9, "expand_timesteps": False}
_5B = {"num_attention_heads": 24, "in_channels": 48, "out_channels": 48, "ffn_dim": 14336, "num_layers": 30}

FIXTURES = {
    "random--wan": Fixture(
        _TO_VIDEO, _components({}, _TINY_VAE, 3.0, experts=2, tiny=True), settings=_SETTINGS,
    ),
    "random--wan_i2v": Fixture(
        _FROM_PICTURE, _components({"in_channels": 12}, _TINY_VAE, 3.0, experts=2, tiny=True),
        settings=_FROM_PICTURE_SETTINGS,
    ),
    "random--wan_ti2v": Fixture(
        _TO_VIDEO, _components({}, _TINY_VAE_22, 5.0, experts=1, tiny=True), settings={"expand_timesteps": True},
    ),
    "Wan-AI--Wan2.2-T2V-A14B-Diffusers": Fixture(
        _TO_VIDEO, _components({}, {}, 3.0, experts=2), settings=_SETTINGS,
        source=f"{_DEFAULTS}; {_CONVERSION}; {_TEXT}",
    ),
    "Wan-AI--Wan2.2-I2V-A14B-Diffusers": Fixture(
        _FROM_PICTURE, _components({"in_channels": 36}, {}, 3.0, experts=2), settings=_FROM_PICTURE_SETTINGS,
        source=f"{_DEFAULTS}; {_CONVERSION}; {_TEXT}",
    ),
    "Wan-AI--Wan2.2-TI2V-5B-Diffusers": Fixture(
        _TO_VIDEO, _components(_5B, _VAE_22, 5.0, experts=1), settings={"expand_timesteps": True},
        source=f"{_CONVERSION}; {_TEXT}",
    ),
}  # fmt: skip
