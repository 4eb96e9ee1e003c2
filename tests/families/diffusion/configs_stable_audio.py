"""Stable Audio Open."""

from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import WORDS


def components(tiny: bool) -> dict[str, Held]:
    transformer = {
        "sample_size": 64, "in_channels": 4, "out_channels": 4, "num_layers": 2, "attention_head_dim": 8,
        "num_attention_heads": 4, "num_key_value_attention_heads": 2, "cross_attention_dim": 16, "time_proj_dim": 8,
        "global_states_input_dim": 32, "cross_attention_input_dim": 16,
    } if tiny else {}  # fmt: skip
    vae = {
        "encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "channel_multiples": [1, 2], "decoder_channels": 4,
        "decoder_input_channels": 4,
    } if tiny else {}  # fmt: skip
    text = {
        "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 37, "num_layers": 2, "num_heads": 4,
    } if tiny else {
        "vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12,
    }  # fmt: skip
    projection = {
        "text_encoder_dim": 32 if tiny else 768, "conditioning_dim": 16 if tiny else 768, "min_value": 0,
        "max_value": 512,
    }  # fmt: skip
    scheduler = {
        "_class_name": "EDMDPMSolverMultistepScheduler", "sigma_min": 0.3, "sigma_max": 500, "sigma_data": 1.0,
        "sigma_schedule": "exponential", "num_train_timesteps": 1000, "prediction_type": "v_prediction", "rho": 7.0,
        "solver_order": 2, "algorithm_type": "dpmsolver++", "solver_type": "midpoint", "lower_order_final": True,
        "euler_at_final": False, "final_sigmas_type": "zero", "thresholding": False,
    }  # fmt: skip
    return {
        "projection_model": Held("stable_audio", "StableAudioProjectionModel", projection),
        "scheduler": Held("diffusers", "EDMDPMSolverMultistepScheduler", scheduler, tensors=False),
        "text_encoder": Held(
            "transformers", "T5EncoderModel", {"model_type": "t5", "tie_word_embeddings": False} | text,
        ),
        "tokenizer": Held("transformers", "T5TokenizerFast", tensors=False),
        "transformer": Held("diffusers", "StableAudioDiTModel", transformer),
        "vae": Held("diffusers", "AutoencoderOobleck", vae),
    }  # fmt: skip


FIXTURES = {
    "random--stable_audio": Fixture("StableAudioPipeline", components(True)),
    "stabilityai--stable-audio-open-1.0": Fixture(
        "StableAudioPipeline",
        components(False),
        license="Stability AI Community License",
        source="class defaults of diffusers (transformer, VAE); written down, and not held against the repository: "
        "text encoder (T5 base), projection, scheduler",
    ),
}
