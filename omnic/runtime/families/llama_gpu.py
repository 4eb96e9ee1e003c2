"""The decoder of `llama` on a GPU: steps of one token a sequence that can be captured, and prompts in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.families.llama import Config, Layer, frequencies
from omnic.runtime.kernels.decode_attention import Workspace, decode_attention, splits_of
from omnic.runtime.kernels.gated import gated
from omnic.runtime.kernels.gemv import gated_gemv, gemv
from omnic.runtime.kernels.prefill_attention import prefill_attention
from omnic.runtime.kernels.residual_norm import embed, residual_norm
from omnic.runtime.kernels.rope import rope
from omnic.runtime.kernels.sample import State

PAGE = 64  # tokens

Attend: TypeAlias = Callable[[int, Layer, Tensor], Tensor]
"""(index of the layer, layer, qkv [rows, ...]) -> attended values [rows, heads · dim]."""


class GpuLlama:
    """The loaded weights, and the pages of `slots` sequences of up to `context` tokens each.

    One slot more than asked for is nobody's: rows that fill up a batch run there. `table` says which pages a slot
    has; each has its own from the start.
    """

    def __init__(
        self, config: Config, embedding: Tensor, norm: Tensor, head: Tensor, layers: Sequence[Layer],
        slots: int, context: int,
    ) -> None:  # fmt: skip
        c = self.config = config
        self._embedding, self._norm, self._head, self._layers = embedding, norm, head, tuple(layers)
        self.dtype, self.device = embedding.dtype, embedding.device
        self.vocabulary, self.slots, self.context = c.vocabulary, slots, context
        each = -(-context // PAGE)
        shape = (slots * each + 1, c.kv_heads, PAGE, c.head_dim)
        self._pages = [torch.zeros(2, *shape, dtype=self.dtype, device=self.device) for _ in layers]
        table = torch.arange(slots * each, dtype=torch.int32).view(slots, each)
        spare = torch.full((1, each), slots * each, dtype=torch.int32)
        self._table = torch.cat((table, spare)).to(self.device)
        angles = torch.outer(torch.arange(each * PAGE).float(), frequencies(c))
        sine = angles.sin()
        self._cosine = angles.cos().repeat(1, 2).to(self.device)
        self._sine = torch.cat((-sine, sine), dim=1).to(self.device)
        self._work: dict[int, Workspace] = {}
        self.dependent = self.device.type == "cuda"

    def step(self, slots: Tensor, state: State) -> Tensor:
        """Runs the next token of each row's sequence and keeps its key and value. Only launches.

        slots: int32 [rows]. -> logits [rows, vocabulary], float32 for one row, else of the model's dtype.
        """
        rows = len(slots)
        x = torch.empty(rows, self.config.hidden, dtype=torch.float32, device=self.device)
        embed(self._embedding, state.tokens, slots, x)  # waits for all before it, so that the rest of the step may look
        # at positions before the kernels between have ended
        return self._narrow(x, slots, state) if rows == 1 else self._wide(x, slots, state)

    def _attend(self, index: int, layer: Layer, qkv: Tensor, slots: Tensor, state: State) -> Tensor:
        c, rows = self.config, len(qkv)
        if rows not in self._work:
            splits = splits_of(rows, c.kv_heads)
            self._work[rows] = Workspace.of(rows, c.heads, c.kv_heads, c.head_dim, splits, self.device)
        out = torch.empty(rows, c.heads * c.head_dim, dtype=self.dtype, device=self.device)
        keys, values = self._pages[index]
        decode_attention(
            qkv, layer.head_norm, self._cosine, self._sine, keys, values, self._table, slots, state.positions, out,
            self._work[rows], c.epsilon, dependent=self.dependent,
        )  # fmt: skip
        return out

    def _narrow(self, x: Tensor, slots: Tensor, state: State) -> Tensor:
        """One row: each product reads its weight once, with what comes before and after it in the same kernel."""
        c, e, early = self.config, self.config.epsilon, self.dependent
        qkv = torch.empty(1, (c.heads + 2 * c.kv_heads) * c.head_dim, dtype=self.dtype, device=self.device)
        inner = torch.empty(1, c.intermediate, dtype=self.dtype, device=self.device)
        for index, layer in enumerate(self._layers):
            gemv(x, layer.qkv.weight, qkv, gain=layer.before_attention, epsilon=e, bias=layer.qkv.bias, dependent=early)
            attended = self._attend(index, layer, qkv, slots, state)
            gemv(attended, layer.out.weight, x, bias=layer.out.bias, add=True, dependent=early)
            gated_gemv(
                x, layer.gate_up.weight, inner, gain=layer.before_mlp, epsilon=e, bias=layer.gate_up.bias,
                dependent=early,
            )  # fmt: skip
            gemv(inner, layer.down.weight, x, bias=layer.down.bias, add=True, dependent=early)
        logits = torch.empty(1, c.vocabulary, dtype=torch.float32, device=self.device)
        gemv(x, self._head, logits, gain=self._norm, epsilon=e, dependent=early)
        return logits

    def _wide(self, x: Tensor, slots: Tensor, state: State) -> Tensor:
        def attend(index: int, layer: Layer, qkv: Tensor) -> Tensor:
            return self._attend(index, layer, qkv, slots, state)

        return functional.linear(self._layers_of(x, attend, early=self.dependent), self._head)

    def prefill(self, tokens: Tensor, slots: Tensor, positions: Tensor, last: Tensor) -> Tensor:
        """Runs pieces of prompts and keeps their keys and values. Only launches.

        tokens, slots, positions: int32 [rows]. A piece starts at a multiple of `prefill_attention.BLOCK`; rows between
        are in the slot that is nobody's, at 0. last: int32 [pieces], the rows -> whose logits [pieces, vocabulary], of
        the model's dtype.
        """
        c = self.config

        def attend(index: int, layer: Layer, qkv: Tensor) -> Tensor:
            queries = torch.empty(len(qkv), c.heads, c.head_dim, dtype=self.dtype, device=self.device)
            out = torch.empty(len(qkv), c.heads * c.head_dim, dtype=self.dtype, device=self.device)
            keys, values = self._pages[index]
            rope(
                qkv, layer.head_norm, self._cosine, self._sine, keys, values, self._table, slots, positions, queries,
                c.epsilon,
            )  # fmt: skip
            prefill_attention(queries, keys, values, self._table, slots, positions, out)
            return out

        x = functional.embedding(tokens, self._embedding).float()
        normed = self._layers_of(x, attend, early=self.dependent)
        return functional.linear(normed.index_select(0, last), self._head)

    def _layers_of(self, x: Tensor, attend: Attend, *, early: bool = False) -> Tensor:
        """x: float32 [rows, hidden], which is overwritten -> what the head takes, of the model's dtype."""
        e = self.config.epsilon
        delta: Tensor | None = None
        for index, layer in enumerate(self._layers):
            normed = torch.empty(x.shape, dtype=self.dtype, device=self.device)
            residual_norm(x, delta, layer.before_attention, normed, e, dependent=early)
            attended = attend(index, layer, functional.linear(normed, layer.qkv.weight, layer.qkv.bias))
            delta = functional.linear(attended, layer.out.weight, layer.out.bias)
            residual_norm(x, delta, layer.before_mlp, normed, e, dependent=early)
            both = functional.linear(normed, layer.gate_up.weight, layer.gate_up.bias)
            inner = torch.empty(len(x), self.config.intermediate, dtype=self.dtype, device=self.device)
            gated(both, inner, dependent=early)
            delta = functional.linear(inner, layer.down.weight, layer.down.bias)
        normed = torch.empty(x.shape, dtype=self.dtype, device=self.device)
        residual_norm(x, delta, self._norm, normed, e, dependent=early)
        return normed
