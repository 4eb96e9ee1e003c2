"""Lumina-Image 2.0."""

from tests.families.diffusion.encoders import kl
from tests.families.diffusion.fixtures import Fixture, Held
from tests.families.diffusion.tokenizers import WORDS


def components(tiny: bool) -> dict[str, Held]:
    stored = "F32" if tiny else "BF16"
    transformer = {
        "in_channels": 4, "hidden_size": 24, "num_layers": 2, "num_refiner_layers": 1, "num_attention_heads": 3,
        "num_kv_heads": 1, "multiple_of": 16, "axes_dim_rope": [4, 2, 2], "axes_lens": [300, 32, 32],
        "cap_feat_dim": 32,
    } if tiny else {"cap_feat_dim": 2304}  # fmt: skip
    text = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "vocab_size": WORDS, "max_position_embeddings": 512,
        "sliding_window": 16, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    } if tiny else {}  # fmt: skip
    scheduler = {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 6.0,
        "use_dynamic_shifting": False,
    }  # fmt: skip
    vae = {"scaling_factor": 0.3611, "shift_factor": 0.1159, "use_quant_conv": False, "use_post_quant_conv": False}
    if tiny:  # its pipeline takes it as given that a VAE makes 8 of 1
        vae |= {"block_out_channels": [4, 4, 4, 8], "down_block_types": ["DownEncoderBlock2D"] * 4,
                "up_block_types": ["UpDecoderBlock2D"] * 4}  # fmt: skip
    return {
        "scheduler": Held("diffusers", "FlowMatchEulerDiscreteScheduler", scheduler, tensors=False),
        "text_encoder": Held("transformers", "Gemma2Model", {"model_type": "gemma2"} | text, stored),
        "tokenizer": Held("transformers", "GemmaTokenizerFast", tensors=False),
        "transformer": Held("diffusers", "Lumina2Transformer2DModel", transformer, stored),
        "vae": kl(tiny, 4 if tiny else 16, **vae),
    }


FIXTURES = {
    "random--lumina2": Fixture("Lumina2Pipeline", components(True)),
    "Alpha-VLLM--Lumina-Image-2.0": Fixture(
        "Lumina2Pipeline",
        components(False),
        source="class defaults of diffusers (transformer, but for the width of its captions) and of transformers "
        "(Gemma 2 2B); the VAE of FLUX.1, which it comes with; scheduler as released",
    ),
}
