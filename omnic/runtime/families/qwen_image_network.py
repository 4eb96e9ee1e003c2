"""The transformer of Qwen-Image as a step runs it on a GPU: what does not change from step to step is made once, the
rest is one fixed sequence of kernels that can be captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from omnic.runtime.attention import Attention
from omnic.runtime.families.qwen_image_weights import joined
from omnic.runtime.kernels.joint_rope import joint_rope
from omnic.runtime.kernels.modulate import modulate, quantise
from omnic.runtime.product import FP8, Product

_EPSILON = 1e-6
_LONG = 2048  # places of a row that is multiplied by itself: joining rows would copy more than it gains


@dataclass(frozen=True, slots=True)
class Modulations:
    """What the timesteps of a request do to the layers: `blocks` [steps, layers, image and text, shift scale gate of
    attention and the same of the MLP, width], `last` [steps, scale and shift, width]."""

    blocks: Tensor
    last: Tensor


@dataclass(frozen=True, slots=True)
class Stream:
    """One of the two streams of a layer."""

    qkv: Product
    out: Product
    up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class Layer:
    image: Stream
    text: Stream
    gains: Tensor  # [4, dim]: of queries and keys of the image, of the text


class Network:
    """Made of a loaded `QwenImageTransformer2DModel`, whose weights it shares; those that it joins become views of
    the joined ones, so that the module stays usable. Matrices that are held in fp8 are multiplied so."""

    def __init__(self, module: Any) -> None:
        self._module = module
        blocks = self._module.transformer_blocks
        self.dim = int(self._module.config.attention_head_dim)
        self.width = int(self._module.inner_dim)
        self.channels = int(self._module.config.in_channels)
        self.read = int(self._module.config.joint_attention_dim)  # width of what the encoder gives
        self._beside = _Beside(self._module.img_in.weight.device)
        self.layers = [_layer(block) for block in blocks]

    def modulations(self, timesteps: Tensor) -> Modulations:
        """timesteps: [steps], from 0 to 1, in the dtype of the weights. Reads a third of all weights once for all
        steps, where each step would read them again."""
        m = self._module
        heard = nn.functional.silu(m.time_text_embed(timesteps, m.img_in.weight))
        steps = len(timesteps)
        made = torch.empty(steps, len(self.layers), 2, 6, self.width, dtype=heard.dtype, device=heard.device)
        for at, block in enumerate(m.transformer_blocks):
            for stream, modulation in enumerate((block.img_mod, block.txt_mod)):
                made[:, at, stream] = modulation[1](heard).view(steps, 6, self.width)
        return Modulations(made, m.norm_out.linear(heard).view(steps, 2, self.width))

    def empty(self, jobs: int) -> Modulations:
        """Room for one step of each of so many jobs."""
        like = self._module.img_in.weight
        return Modulations(
            like.new_zeros(jobs, len(self.layers), 2, 6, self.width), like.new_zeros(jobs, 2, self.width)
        )

    def text(self, states: Tensor) -> Tensor:
        """[1, tokens, width of the encoder] -> [1, tokens, width]."""
        found: Tensor = self._module.txt_in(self._module.txt_norm(states))
        return found

    def rotary(self, shapes: Sequence[tuple[int, int, int]], tokens: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine, float32 [places of the image and of the text, dim / 2]."""
        device = self._module.img_in.weight.device
        turns = torch.cat(self._module.pos_embed([list(shapes)], max_txt_seq_len=tokens, device=device))
        return turns.real.float().contiguous(), turns.imag.float().contiguous()

    def __call__(
        self, x: Tensor, text: Tensor, attention: Attention, at: Modulations, turns: tuple[Tensor, Tensor], seen: int
    ) -> Tensor:
        """x: packed latents [rows, places, channels], text: [rows, tokens, width], both in the weights' dtype; `at`
        has one entry a job instead of one a step, each for as many rows -> predictions for the first `seen` places,
        [rows, seen, channels]."""
        rows, places, _ = x.shape
        heads, joint = self.width // self.dim, places + text.shape[1]
        image = self._module.img_in(x).view(-1, self.width)
        words = text.reshape(-1, self.width).clone()
        held = torch.empty(3, rows, joint, heads, self.dim, dtype=x.dtype, device=x.device)
        picture, told = _Running(image, at.blocks, 0), _Running(words, at.blocks, 1)
        with self._beside:
            asked = told.ahead(0, 0, self.layers[0].text.qkv)
        for number, layer in enumerate(self.layers):
            qkv = picture.ahead(number, 0, layer.image.qkv)
            self._beside.join()
            joint_rope(qkv, asked, layer.gains, *turns, held, _EPSILON)
            made = attention(held[0], held[1], held[2]).reshape(rows, joint, self.width)
            with self._beside:
                if number + 1 < len(self.layers):  # nobody reads what the last layer makes of the text
                    told.attended(layer.text, made[:, places:])
                    told.thought(number, layer.text)
                    asked = told.ahead(number + 1, 0, self.layers[number + 1].text.qkv)
            picture.attended(layer.image, made[:, :places])
            picture.thought(number, layer.image)
            self._beside.held = made  # its memory is free for others once both streams have read it
        self._beside.join()
        image = picture.end(at.last)
        shown: Tensor = self._module.proj_out(image.view(rows, places, self.width)[:, :seen])
        return shown


class _Beside:
    """Work on a second stream of the device: `with` it what runs there, after all that was launched before; `join` is
    where the first waits for it. The text's products are small, and fill what the image's leave idle."""

    def __init__(self, device: torch.device) -> None:
        self._stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._within: Any = None
        self.held: Tensor | None = None

    def __enter__(self) -> None:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream())
            self._within = torch.cuda.stream(self._stream)
            self._within.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._stream is not None:
            self._within.__exit__(*error)

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)


class _Running:
    """A stream on its way through the layers: its residual, and what is still to be added to it."""

    def __init__(self, x: Tensor, modulations: Tensor, which: int) -> None:
        self.x, self._modulations, self._which = x, modulations, which
        self._delta: Tensor | None = None
        self._gate: Tensor | None = None

    def ahead(self, layer: int, part: int, product: Product) -> Tensor:
        """The product of the stream, normed and modulated, after what was to be added has been."""
        return product(*self._normed(layer, part, product.fp8))

    def attended(self, of: Stream, attended: Tensor) -> None:
        """attended: [rows, places, width], each row in one piece."""
        rows, places, width = attended.shape
        if of.out.fp8:
            out, scale = _fp8_like(self.x)
            for at, row in enumerate(attended):
                here = slice(at * places, (at + 1) * places)
                quantise(row, out[here], scale[here])
            self._delta = of.out(out, scale)
        elif rows > 1 and places >= _LONG:
            self._delta = torch.empty_like(self.x)
            for row, out in zip(attended, torch.split(self._delta, places), strict=True):
                of.out.into(row, out)
        else:
            self._delta = of.out(attended.reshape(-1, width))

    def thought(self, layer: int, of: Stream) -> None:
        """The MLP, after attention has been added."""
        self._gate = self._modulations[:, layer, self._which, 2]
        if of.up.fp8:
            self._delta = of.down(*_fp8(self.ahead(layer, 1, of.up), gelu=True))
        else:
            self._delta = of.down(of.up.gelu(self._normed(layer, 1, False)[0]))
        self._gate = self._modulations[:, layer, self._which, 5]

    def end(self, last: Tensor) -> Tensor:
        out = torch.empty_like(self.x)
        modulate(self.x, last[:, 1], last[:, 0], out, _EPSILON, delta=self._delta, gate=self._gate)
        return out

    def _normed(self, layer: int, part: int, fp8: bool) -> tuple[Tensor, Tensor | None]:
        at = self._modulations[:, layer, self._which, 3 * part : 3 * part + 3]
        out = torch.empty_like(self.x, dtype=FP8 if fp8 else None)
        scale = torch.empty(len(self.x), device=self.x.device) if fp8 else None
        given = {} if self._delta is None else {"delta": self._delta, "gate": self._gate}
        modulate(self.x, at[:, 0], at[:, 1], out, _EPSILON, **given, out_scale=scale)
        self._delta = None
        return out, scale


def _fp8(x: Tensor, *, gelu: bool) -> tuple[Tensor, Tensor]:
    out, scale = _fp8_like(x)
    quantise(x, out, scale, gelu=gelu)
    return out, scale


def _fp8_like(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, dtype=FP8), torch.empty(len(x), device=x.device)


def _layer(block: Any) -> Layer:
    a = block.attn
    image = Stream(
        joined(a.to_q, a.to_k, a.to_v),
        joined(a.to_out[0]),
        joined(block.img_mlp.net[0].proj),
        joined(block.img_mlp.net[2]),
    )
    text = Stream(
        joined(a.add_q_proj, a.add_k_proj, a.add_v_proj),
        joined(a.to_add_out),
        joined(block.txt_mlp.net[0].proj),
        joined(block.txt_mlp.net[2]),
    )
    gains = torch.stack([norm.weight for norm in (a.norm_q, a.norm_k, a.norm_added_q, a.norm_added_k)])
    return Layer(image, text, gains)
