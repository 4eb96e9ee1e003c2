"""HunyuanVideo 1.5: how its parts run. The modules are those of diffusers and transformers; guidance and the loop are
omnic's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.expr import Size
from omnic.runtime.components import Components, OneTransformer
from omnic.runtime.diffusion import Ask, Denoiser, Embeds, Job, Latents, Row, Transform
from omnic.runtime.encoders import T5, Layers, TextEncoder
from omnic.runtime.errors import RequestError
from omnic.runtime.guidance import Guidance
from omnic.runtime.home import Home
from omnic.runtime.latents import noise, padded
from omnic.runtime.prompts import in_turns, within
from omnic.runtime.schedule import Schedule, even_sigmas
from omnic.runtime.tensors import Loaded
from omnic.runtime.video_vae import VideoVae
from omnic.runtime.weights import Checkpoint

_TOKENS, _LETTERS = 1000, 256
_SKIPPED = 2  # last layers of the language model, whose states are not used
_SYSTEM = (
    "You are a helpful assistant. Describe the video by detailing the following aspects:         1. The main content "
    "and theme of the video.         2. The color, shape, size, texture, quantity, text, and spatial relationships of "
    "the objects.         3. Actions, events, behaviors temporal relationships, physical movement changes of the "
    "objects.         4. background environment, light, style and atmosphere.         5. camera angles, movements, and "
    "transitions used in the video."
)


def load(checkpoint: Checkpoint, part: str, home: Home, loaded: Loaded) -> Denoiser | Transform:
    """Raises Missing or Damaged."""
    components = Components(checkpoint, home, loaded)
    match part:
        case "text_encoder":
            return TextEncoder(Words(components).encoded)
        case "denoiser":
            return Painter(components)
        case "vae_decode":
            return VideoVae(components).frames()
    raise AssertionError(part)


class Words:
    """Text to states of Qwen2.5-VL's language model, and of what is to be read in the video, which stands in quotation
    marks, to those of a T5 that reads letters."""

    def __init__(self, components: Components) -> None:
        config = components.config("text_encoder")
        layer = int(config["num_hidden_layers"]) - _SKIPPED
        self._model = Layers(components, "Qwen2_5_VLTextModel", [layer])
        self._tokenizer = components.tokenizer("tokenizer", int(config["vocab_size"]))
        self.skip = len(self._ids("{}", before=True))
        self._letters = T5(components, "text_encoder_2", "tokenizer_2", _LETTERS)

    def encoded(self, text: str, field: str) -> dict[str, Tensor]:
        ids = within(self._ids(text or " "), _TOKENS + self.skip, text, field)
        (states,) = self._model(ids, torch.ones_like(ids))
        written = _written(text)
        letters = self._letters.alone(written, field) if written else states.new_zeros(1, 0, self._letters.width)
        return {"states": states[:, self.skip :], "letters": letters}

    def _ids(self, text: str, *, before: bool = False) -> Sequence[int]:
        """Tokens of a text in its template, or of what stands before it there."""
        turns = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]
        whole = in_turns(self._tokenizer, turns, add_generation_prompt=True)
        found: Sequence[int] = self._tokenizer(whole.partition(text)[0] if before else whole)["input_ids"]
        return found


def _written(text: str) -> str:
    """What is to be read in the video, as the model was trained to be told of it."""
    found = [a or b for a, b in re.findall(r'"(.*?)"|“(.*?)”', text)]
    return "".join(f'Text "{each}". ' for each in dict.fromkeys(found))


class Joined:
    """Attention of both streams over both, as diffusers' own does it, but for the mask: that of places times places,
    which takes gigabytes for a video, is left out where no text is padded, and one of places where some are. What
    padding itself attends to changes nothing: nobody attends to it."""

    def __call__(
        self, attn: Any, hidden_states: Tensor, encoder_hidden_states: Tensor, attention_mask: Tensor,
        image_rotary_emb: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        from diffusers.models import embeddings

        turned: Any = embeddings.apply_rotary_emb

        def heads(x: Tensor) -> Tensor:
            return x.reshape(*x.shape[:2], attn.heads, -1)

        seen, told, mask = hidden_states, encoder_hidden_states, attention_mask.bool()
        query, key = attn.norm_q(heads(attn.to_q(seen))), attn.norm_k(heads(attn.to_k(seen)))
        query, key = (turned(x, image_rotary_emb, sequence_dim=1) for x in (query, key))
        query_told, key_told = heads(attn.add_q_proj(told)), heads(attn.add_k_proj(told))
        query_told, key_told = attn.norm_added_q(query_told), attn.norm_added_k(key_told)
        pairs: tuple[tuple[Tensor, Tensor], ...] = (
            (query, query_told),
            (key, key_told),
            (heads(attn.to_v(seen)), heads(attn.add_v_proj(told))),
        )
        query, key, value = (torch.cat(pair, 1).transpose(1, 2) for pair in pairs)
        whole = None if bool(mask.all()) else functional.pad(mask, (seen.shape[1], 0), value=True)[:, None, None]
        found = functional.scaled_dot_product_attention(query, key, value, whole).transpose(1, 2).flatten(2)
        seen, told = torch.split(found, [seen.shape[1], told.shape[1]], 1)
        return attn.to_out[1](attn.to_out[0](seen)), attn.to_add_out(told)


class Painter(OneTransformer):
    """Satisfies `diffusion.Denoiser`. Texts of different lengths share a forward: padding is masked."""

    def __init__(self, components: Components) -> None:
        transformer: Any = components.module("transformer")
        for block in transformer.transformer_blocks:
            block.attn.set_processor(Joined())
        self._transformer = transformer
        self._scheduler, self._vae = components.config("scheduler"), components.config("vae")
        self._guider, self._dtype = components.config("guider"), components.dtype
        self._picture = int(components.config("transformer")["image_embed_dim"])

    def prepare(self, ask: Ask) -> Job:
        embeds: Embeds = ask.inputs["condition"]
        size: Size = ask.settings["size"]
        frames, count = int(ask.settings["frames"]), int(ask.settings["steps"])
        time, space = (int(self._vae[f"{axis}_compression_ratio"]) for axis in ("temporal", "spatial"))
        shape = ((frames - 1) // time + 1, size.height // space, size.width // space)
        schedule = Schedule(self._scheduler, count, sigmas=even_sigmas(count))
        generator = ask.generator()
        x = noise((1, int(self._vae["latent_channels"]), *shape), generator)
        if embeds.negative is None:
            raise RequestError("the encoder gave nothing to keep away from", "negative_prompt")
        branches = (embeds.prompt, embeds.negative)
        return Job((x,), (schedule,), branches, self._guidance(ask, len(schedule)), (size, frames), generator)

    def _guidance(self, ask: Ask, count: int) -> Guidance:
        """At the steps where the checkpoint's guider wants it."""
        first, last = (int(float(self._guider.get(end, of)) * count) for end, of in (("start", 0.0), ("stop", 1.0)))
        scale = float(ask.settings["guidance"])
        scales = tuple(scale if first <= step < last else 1.0 for step in range(count))
        return Guidance(2, scales, rescale=float(self._guider.get("guidance_rescale", 0.0)))

    def forward(self, x: tuple[Tensor, ...], t: Tensor, rows: Sequence[Row]) -> tuple[Tensor, ...]:
        latents = x[0].to(self._dtype)
        states, mask = padded([row.condition["states"] for row in rows])
        letters, letters_mask = padded([row.condition["letters"] for row in rows])
        given = latents.new_zeros(len(rows), latents.shape[1] + 1, *latents.shape[2:])  # no first frame
        (prediction,) = self._transformer(
            hidden_states=torch.cat([latents, given], 1),
            timestep=t.to(self._dtype),
            encoder_hidden_states=states.to(self._dtype),
            encoder_attention_mask=mask,
            encoder_hidden_states_2=letters.to(self._dtype),
            encoder_attention_mask_2=letters_mask,
            image_embeds=latents.new_zeros(len(rows), 0, self._picture),
            return_dict=False,
        )
        return (prediction.float(),)

    def finish(self, job: Job) -> Mapping[str, Any]:
        return {"latents": Latents(job.x[0])}
