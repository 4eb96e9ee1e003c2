"""CogVideoX: 2 B with fixed positions, 5 B with rotary ones, 1.5 with patches of time."""

from typing import Any

from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import T5_WORDS

_SCHEDULER = {
    "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear", "num_train_timesteps": 1000,
    "prediction_type": "v_prediction", "rescale_betas_zero_snr": True, "clip_sample": False, "set_alpha_to_one": True,
    "steps_offset": 0, "timestep_spacing": "trailing",
}  # fmt: skip
_SMALL = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "num_layers": 2,
          "time_embed_dim": 8, "text_embed_dim": 32, "max_text_seq_length": 32, "sample_width": 8, "sample_height": 6,
          "sample_frames": 9}  # fmt: skip
_ROTARY = {"use_rotary_positional_embeddings": True}
_5B = _ROTARY | {"num_attention_heads": 48, "num_layers": 42}


def _components(
    transformer: dict[str, Any], solver: str, shift: float, scaling: float, *, tiny: bool = False, stored: str = "BF16"
) -> dict[str, Held]:
    scheduler = _SCHEDULER | {"_class_name": f"CogVideoX{solver}Scheduler", "snr_shift_scale": shift}
    text: dict[str, Any] = {"d_model": 4096, "d_ff": 10240, "num_layers": 24, "num_heads": 64, "vocab_size": 32128}
    vae: dict[str, Any] = {"scaling_factor": scaling}
    if tiny:
        text = {"d_model": 32, "d_ff": 37, "num_layers": 2, "num_heads": 4, "d_kv": 8, "vocab_size": T5_WORDS + 250}
        transformer = _SMALL | transformer
        vae |= {"block_out_channels": [8, 8, 16, 16], "latent_channels": 4, "layers_per_block": 1, "norm_num_groups": 2}
    text |= {"model_type": "t5", "feed_forward_proj": "gated-gelu"}
    stored = "F32" if tiny else stored
    return {
        "scheduler": Held("diffusers", f"CogVideoX{solver}Scheduler", scheduler, tensors=False),
        "text_encoder": Held("transformers", "T5EncoderModel", text, stored),
        "tokenizer": Held("transformers", "T5Tokenizer", tensors=False),
        "transformer": Held("diffusers", "CogVideoXTransformer3DModel", transformer, stored),
        "vae": Held("diffusers", "AutoencoderKLCogVideoX", vae, stored),
    }


_SOURCE = (
    "class defaults of diffusers and its conversion script (sizes, scheduler, scaling); published config of T5 v1.1 XXL"
)
_COG = "CogVideoXPipeline"

FIXTURES = {
    "random--cogvideox": Fixture(_COG, _components({}, "DDIM", 3.0, 1.15258426, tiny=True)),
    "random--cogvideox_5b": Fixture(_COG, _components(_ROTARY, "DPM", 1.0, 0.7, tiny=True)),
    "random--cogvideox_15": Fixture(
        _COG, _components(_ROTARY | {"patch_size_t": 2, "patch_bias": False}, "DPM", 1.0, 0.7, tiny=True)
    ),
    "zai-org--CogVideoX-2b": Fixture(
        _COG, _components({}, "DDIM", 3.0, 1.15258426, stored="F16"), source=_SOURCE
    ),
    "zai-org--CogVideoX-5b": Fixture(
        _COG, _components(_5B, "DDIM", 1.0, 0.7), license="CogVideoX License", source=_SOURCE
    ),
}  # fmt: skip
