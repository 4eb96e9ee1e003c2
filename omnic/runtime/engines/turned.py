"""Transformers whose rotary tables are complex numbers, which ONNX has none of: bodies that take real tables."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Forward = Callable[..., Any]
Turned = tuple[nn.Module, Callable[[Forward], Forward]]


@dataclass(frozen=True, slots=True)
class _Complex:
    """Complex numbers as two tensors, with what rotary embeddings do with them."""

    real: Tensor
    imaginary: Tensor

    @classmethod
    def of(cls, pairs: Tensor) -> _Complex:
        """[…, 2]."""
        return cls(pairs[..., 0], pairs[..., 1])

    def unsqueeze(self, dim: int) -> _Complex:
        return _Complex(self.real.unsqueeze(dim), self.imaginary.unsqueeze(dim))

    def __mul__(self, other: _Complex) -> _Complex:
        return _Complex(
            self.real * other.real - self.imaginary * other.imaginary,
            self.real * other.imaginary + self.imaginary * other.real,
        )

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is torch.view_as_real:
            return torch.stack([args[0].real, args[0].imaginary], -1)
        return NotImplemented


class _Real(TorchFunctionMode):
    """Within it, on this thread, complex views of tensors are `_Complex`; a length that is still open stays so where
    it is made a tensor."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if function is torch.view_as_complex:
            return _Complex.of(args[0])
        if function is torch.as_tensor and isinstance(args[0], torch.SymInt):
            return torch.ones(args[0], dtype=torch.int64).sum()
        return function(*args, **(kwargs or {}))


class _Tables(nn.Module):
    """Stands where a transformer computes its tables, and gives what it was handed."""

    def __init__(self) -> None:
        super().__init__()
        self._cell = _Cell()

    def hand(self, *tables: Any) -> None:
        self._cell.tables = tables

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._cell.tables


class _Cell:
    tables: tuple[Any, ...] = ()


class _QwenImage(nn.Module):
    def __init__(self, transformer: nn.Module) -> None:
        super().__init__()
        self._tables = _Tables()
        self.transformer = copy.copy(transformer)
        self.transformer._modules = {**transformer._modules, "pos_embed": self._tables}

    def forward(self, image_turns: Tensor, text_turns: Tensor, **given: Any) -> Any:
        """The tables are [places, pairs, 2]: cosine and sine; the rest is what the transformer takes."""
        self._tables.hand(_Complex.of(image_turns), _Complex.of(text_turns))
        with _Real():
            return self.transformer(**given)


def qwen_image(transformer: nn.Module) -> Turned:
    """Qwen-Image. The tables depend on the shapes of the pictures, which are no tensors, and so are made outside."""
    inner, made = _QwenImage(transformer), transformer.get_submodule("pos_embed")

    def wrap(run: Forward) -> Forward:
        def forward(*, hidden_states: Tensor, encoder_hidden_states: Tensor, img_shapes: Any, **given: Any) -> Any:
            if given.get("encoder_hidden_states_mask") is None:  # one engine for both
                seen = torch.ones(encoder_hidden_states.shape[:2], dtype=torch.bool, device=hidden_states.device)
                given["encoder_hidden_states_mask"] = seen
            image, text = made(img_shapes, max_txt_seq_len=encoder_hidden_states.shape[1], device=hidden_states.device)
            return run(
                torch.view_as_real(image),
                torch.view_as_real(text),
                hidden_states=hidden_states,
                encoder_hidden_states=encoder_hidden_states,
                **given,
            )

        return forward

    return inner, wrap


class _ZImage(nn.Module):
    def __init__(self, transformer: Any, patches: str) -> None:
        super().__init__()
        self.transformer, self._patches = transformer, patches

    def forward(
        self, x: Tensor, captions: Tensor, t: Tensor, x_turns: Tensor, caption_turns: Tensor, x_padding: Tensor,
        caption_padding: Tensor, caption_mask: Tensor,
    ) -> Tensor:  # fmt: skip
        """Patches [rows, places, width] and captions [rows, tokens, width] -> patches, those of captions after them.

        `padding` is true for what fills up to a multiple, which the model was trained to see; `mask` is false for what
        makes captions of one length, which it must not see.
        """
        model = self.transformer
        time = model.t_embedder(t * model.t_scale).type_as(x)
        x = torch.where(x_padding[..., None], model.x_pad_token, model.all_x_embedder[self._patches](x))
        text = torch.where(caption_padding[..., None], model.cap_pad_token, model.cap_embedder(captions))
        turns, text_turns = _Complex.of(x_turns), _Complex.of(caption_turns)
        with _Real():
            for layer in model.noise_refiner:
                x = layer(x, None, turns, time)
            for layer in model.context_refiner:
                text = layer(text, caption_mask, text_turns)
            both = torch.cat([x, text], 1)
            mask = torch.cat([torch.ones_like(x_padding), caption_mask], 1)
            turns = _Complex.of(torch.cat([x_turns, caption_turns], 1))
            for layer in model.layers:
                both = layer(both, mask, turns, time)
        made: Tensor = model.all_final_layer[self._patches](both, c=time)
        return made


def z_image(transformer: nn.Module) -> Turned:
    """Z-Image. Patches, padding and tables are made outside, for lists of pictures and captions."""
    model: Any = transformer
    patch, patch_frames = 2, 1  # what its pipelines use
    inner = _ZImage(model, f"{patch}-{patch_frames}")

    def wrap(run: Forward) -> Forward:
        def forward(pictures: list[Tensor], t: Tensor, captions: list[Tensor], *, return_dict: bool = True) -> Any:
            x, text, sizes, x_at, text_at, x_padding, text_padding = model.patchify_and_embed(
                pictures, captions, patch, patch_frames
            )
            longest = max(map(len, text))
            seen = torch.arange(longest, device=t.device) < torch.tensor([[len(one)] for one in text], device=t.device)
            made = run(
                torch.stack(x),
                _filled(text, longest),
                t,
                torch.stack([torch.view_as_real(model.rope_embedder(at)) for at in x_at]),
                # it counts more places than there are: what fills up, twice
                _filled([torch.view_as_real(model.rope_embedder(at[:longest])) for at in text_at], longest),
                torch.stack(x_padding),
                _filled(text_padding, longest),
                seen,
            )
            return (model.unpatchify(list(made.unbind(0)), sizes, patch, patch_frames),)

        return forward

    return inner, wrap


def _filled(rows: Sequence[Tensor], longest: int) -> Tensor:
    """Rows of different lengths as one tensor, zeros behind."""
    return nn.utils.rnn.pad_sequence([*rows, rows[0].new_zeros(longest, *rows[0].shape[1:])], batch_first=True)[:-1]
