"""CogVideoX (2 B, 5 B and 1.5) from text: how its parts run. Modules are those of diffusers and transformers; the loop
is omnic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import T5, TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import constant
from omnic.runtime.home import Home
from omnic.runtime.latents import noise, restored
from omnic.runtime.pictures import to_pixels
from omnic.runtime.schedule import Schedule
from omnic.runtime.tensors import Loaded
from omnic.runtime.weights import Checkpoint

_TOGETHER = 2  # frames of latents that its VAE decodes at a time: it normalises over them, so more or fewer are others


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            tokens = int(components.config("transformer")["max_text_seq_length"])
            t5 = T5(components, "text_encoder", "tokenizer", tokens)
            return TextEncoder(lambda text, field: {"states": t5(text, field)})
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return Decoder(components)
    raise AssertionError(part)


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`. Latents lie as its transformer has them: [1, frames, channels, height, width]."""

    def __init__(self, components: Components) -> None:
        self._transformer: Any = components.module("transformer")
        self._config, self._scheduler = components.config("transformer"), components.config("scheduler")
        self._dtype, vae = components.dtype, components.config("vae")
        self._time, self._space = int(vae["temporal_compression_ratio"]), 2 ** (len(vae["block_out_channels"]) - 1)

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        frames, count = int(ask.settings["frames"]), int(ask.settings["steps"])
        height, width = size.height // self._space, size.width // self._space
        length = (frames - 1) // self._time + 1
        together = int(self._config.get("patch_size_t") or 1)
        more = -length % together  # frames before the video, so that it can be cut into patches of time
        schedule = Schedule(self._scheduler, count)
        generator = ask.generator()
        shape = (1, length + more, int(self._config["in_channels"]), height, width)
        x = noise(shape, generator) * schedule.first_sigma
        if embeds.negative is None:
            raise RequestError("the encoder gave nothing to keep away from", "negative_prompt")
        branches = (embeds.prompt, embeds.negative)
        guidance = constant(float(ask.settings["guidance"]), len(schedule))
        fixed = {"more": more, "turns": self._turns(height, width, length + more)}
        return Job((x,), (schedule,), branches, guidance, (size, frames), generator, fixed)

    def _turns(self, height: int, width: int, frames: int) -> Any:
        """Rotary tables of latents of a size, where the transformer has no other positions."""
        if not self._config["use_rotary_positional_embeddings"]:
            return None
        from diffusers.models import embeddings
        from diffusers.pipelines.cogvideo import pipeline_cogvideox

        table: Any = embeddings.get_3d_rotary_pos_embed
        patch, together = int(self._config["patch_size"]), self._config.get("patch_size_t")
        grid = (height // patch, width // patch)
        base = int(self._config["sample_height"]) // patch, int(self._config["sample_width"]) // patch
        if together is not None:
            return table(
                self._config["attention_head_dim"], None, grid, -(-frames // int(together)), grid_type="slice",
                max_size=base,
            )  # fmt: skip
        region: Any = pipeline_cogvideox.get_resize_crop_region_for_grid
        return table(self._config["attention_head_dim"], region(grid, base[1], base[0]), grid, frames)

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        (prediction,) = self._transformer(
            hidden_states=x[0].to(self._dtype),
            encoder_hidden_states=torch.cat([row.condition["states"] for row in rows]).to(self._dtype),
            timestep=t,
            image_rotary_emb=rows[0].job.fixed["turns"],
            return_dict=False,
        )
        return (prediction.float(),)

    def examples(self, size: Size | None, frames: int) -> Iterator[Ask]:
        states = torch.zeros(1, int(self._config["max_text_seq_length"]), int(self._config["text_embed_dim"]))
        words = {"states": states}
        for scale in (2.0, 1.0):
            settings = {"size": size, "frames": frames, "steps": 1, "guidance": scale}
            yield Ask(0, {"condition": Embeds(words, words)}, settings)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0][:, job.fixed["more"] :].transpose(1, 2))}


class Decoder:
    """Latents to a video, some frames at a time. Satisfies `diffusion.Transform`."""

    def __init__(self, components: Components) -> None:
        self._vae: Any = components.module("vae", skip=("encoder.", "quant_conv."))
        self._config, self._dtype = components.config("vae"), components.dtype

    def run(self, ask: Ask) -> Iterator[Mapping[str, Any]]:
        for frames in self._decoded(ask.inputs["latents"].values):
            yield {"video": np.stack([to_pixels(frame) for frame in frames[0].unbind(1)])}

    def decode(self, latents: Tensor) -> Tensor:
        """[1, C, F, h, w] -> [1, 3, frames, H, W] in -1..1."""
        return torch.cat(list(self._decoded(latents)), 2)

    def _decoded(self, latents: Tensor) -> Iterator[Tensor]:
        z, memory = restored(latents.to(self._dtype), {"scaling_factor": self._config["scaling_factor"]}), None
        frames, odd = z.shape[2], z.shape[2] % _TOGETHER
        for end in range(min(_TOGETHER + odd, frames), frames + 1, _TOGETHER):
            begin = 0 if end <= _TOGETHER + odd else end - _TOGETHER
            part = z[:, :, begin:end]
            if self._vae.post_quant_conv is not None:
                part = self._vae.post_quant_conv(part)
            made, memory = self._vae.decoder(part, conv_cache=memory)
            yield made
