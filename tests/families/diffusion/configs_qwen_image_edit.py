"""Qwen-Image-Edit: Qwen-Image's components, and a processor of pictures."""

from tests.families.diffusion.configs_qwen_image import components
from tests.families.diffusion.fixtures import Fixture, Held

_PROCESSOR = {"processor": Held("transformers", "Qwen2VLProcessor", tensors=False)}

FIXTURES = {
    "random--qwen_image_edit": Fixture("QwenImageEditPipeline", components(True) | _PROCESSOR),
    "Qwen--Qwen-Image-Edit": Fixture(
        "QwenImageEditPipeline",
        components(False) | _PROCESSOR,
        source="class defaults of diffusers (transformer, VAE); published config of Qwen2.5-VL-7B (text encoder)",
    ),
}
