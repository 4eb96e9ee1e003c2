"""Llama, Qwen2 and Qwen3: one decoder, told apart by its biases and by norms on queries and keys."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.convert import directory
from omnic.runtime.errors import Elsewhere
from omnic.runtime.families.attention import Cache, Plan
from omnic.runtime.home import CPU, Home
from omnic.runtime.language import Span
from omnic.runtime.linear import Linear, packs
from omnic.runtime.tensors import Loaded, Seeded, Shards, Source, dtype_of
from omnic.runtime.weights import Checkpoint

if TYPE_CHECKING:
    from omnic.runtime.generate_prompts import PagedModel


@dataclass(frozen=True, slots=True)
class Config:
    """The numbers of a config.json that the forward needs."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope_theta: float
    rope_scaling: Mapping[str, Any] | None  # of type linear or llama3

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Config:
        """From the config in a manifest, which the catalog has completed and checked."""
        return cls(
            vocabulary=config["vocab_size"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            kv_heads=config["num_key_value_heads"],
            head_dim=config["head_dim"],
            epsilon=config["rms_norm_eps"],
            tied=config["tie_word_embeddings"],
            qkv_bias=config["attention_bias"],
            out_bias=config["attention_output_bias"],
            mlp_bias=config["mlp_bias"],
            qk_norm=config["qk_norm"],
            rope_theta=config["rope_theta"],
            rope_scaling=config["rope_scaling"],
        )


def frequencies(config: Config) -> Tensor:
    """Rotation a position, in radians: float32 [head_dim / 2].

    llama3 scaling leaves short waves as they are, slows those longer than the original context by `factor`,
    and blends between.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    plain: Tensor = 1.0 / (config.rope_theta**exponents)
    if (scaling := config.rope_scaling) is None:
        return plain
    slowed: Tensor = plain / scaling["factor"]
    if scaling["rope_type"] == "linear":
        return slowed
    waves = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # that fit the original context
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    return torch.lerp(slowed, plain, ((waves - low) / (high - low)).clamp(0, 1))


@dataclass(frozen=True, slots=True)
class Layer:
    before_attention: Tensor  # norm weights
    before_mlp: Tensor
    qkv: Linear
    head_norm: Tensor | None  # [query and key heads, head_dim], where queries and keys are normed
    out: Linear
    gate_up: Linear
    down: Linear


def load(checkpoint: Checkpoint, dtype: str, loaded: Loaded) -> Llama:
    """The model in `dtype`. Raises Damaged or Missing for files that cannot be used."""
    return Llama(Config.read(checkpoint.model.config), dtype_of(dtype), source(checkpoint, dtype, loaded), loaded)


def load_paged(checkpoint: Checkpoint, home: Home, slots: int, context: int, loaded: Loaded) -> PagedModel:
    """The model on a GPU, with pages for `slots` sequences of `context` tokens. Raises as `load` does, and Elsewhere
    for heads that the kernels there cannot take."""
    from omnic.runtime.families.llama_gpu import GpuLlama  # its kernels need Triton

    config = Config.read(checkpoint.model.config)
    if (dim := config.head_dim) < 16 or dim & (dim - 1):
        raise Elsewhere(
            f"model `{checkpoint.model.name}` has heads of {dim} numbers, and GPUs take powers of two from 16"
        )
    weights = source(checkpoint, home.dtype, loaded)
    embedding, norm, head, layers = Reader(config, home.torch_dtype, weights, loaded, home.device).model()
    return GpuLlama(config, embedding, norm, head.weight, layers, slots, context)


def source(checkpoint: Checkpoint, dtype: str, loaded: Loaded) -> Source:
    """Where the checkpoint's weights come from; a GGUF file is converted to `dtype` first."""
    if checkpoint.root is None:
        return Seeded(checkpoint.model.config["seed"])
    if checkpoint.model.format == "gguf":
        return Shards([directory(checkpoint, dtype, loaded) / "model.safetensors"])
    return Shards(checkpoint.files(".safetensors"))


class Llama:
    """The loaded model, and the cache of its slots. Satisfies `language.LanguageModel`."""

    def __init__(self, config: Config, dtype: torch.dtype, source: Source, loaded: Loaded) -> None:
        self.config, self.dtype = config, dtype
        self.vocabulary = config.vocabulary
        reader = Reader(config, dtype, source, loaded)
        self.weight_bytes = reader.total
        self._embedding, self._norm, self._head, self._layers = reader.model()
        self._caches: tuple[Cache, ...] = ()
        self._cosine = self._sine = torch.empty(0)

    def kv_bytes(self, slots: int, context: int) -> int:
        c = self.config
        return 2 * c.layers * c.kv_heads * c.head_dim * self.dtype.itemsize * slots * context

    def allocate(self, slots: int, context: int) -> None:
        c = self.config
        self._caches = tuple(Cache(slots, context, c.kv_heads, c.head_dim, self.dtype) for _ in range(c.layers))
        angles = torch.outer(torch.arange(context).float(), frequencies(c))
        sine = angles.sin()
        # rotation as x * cosine + (x with its halves swapped) * sine, the sign of the swap inside the sine
        self._cosine = angles.cos().repeat(1, 2).to(self.dtype).unsqueeze(1)
        self._sine = torch.cat((-sine, sine), dim=1).to(self.dtype).unsqueeze(1)

    def forward(self, spans: Sequence[Span]) -> Tensor:
        c = self.config
        context = self._caches[0].context
        positions = torch.tensor([s.start + i for s in spans for i in range(len(s.tokens))])
        rows = torch.tensor([s.slot * context + s.start + i for s in spans for i in range(len(s.tokens))])
        tokens = torch.tensor([token for s in spans for token in s.tokens])
        cosine, sine = self._cosine[positions], self._sine[positions]
        plan = Plan(spans, context, self.dtype)
        query_width, rotated_width = c.heads * c.head_dim, (c.heads + c.kv_heads) * c.head_dim
        x = functional.embedding(tokens, self._embedding).float()  # what layers add to is kept in float32
        for layer, cache in zip(self._layers, self._caches, strict=True):
            qkv = layer.qkv(self._normed(x, layer.before_attention))
            qk = qkv[:, :rotated_width].view(len(tokens), -1, c.head_dim)
            if layer.head_norm is not None:
                qk = functional.rms_norm(qk, (c.head_dim,), None, c.epsilon) * layer.head_norm
            qk = torch.addcmul(qk * cosine, qk.roll(c.head_dim // 2, -1), sine)
            cache.put(rows, qk[:, c.heads :], qkv[:, rotated_width:].view(len(tokens), -1, c.head_dim))
            attended = plan.attend(qk[:, : c.heads], cache)
            x.add_(layer.out(attended.view(-1, query_width)))
            gate, up = layer.gate_up(self._normed(x, layer.before_mlp)).chunk(2, dim=1)
            x.add_(layer.down(functional.silu(gate) * up))
        ends = accumulate(len(s.tokens) for s in spans)
        wanted = [end - 1 for end, s in zip(ends, spans, strict=True) if s.logits]
        if len(wanted) < len(x):
            x = x[wanted]
        return self._head(self._normed(x, self._norm)).float()

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        """x: float32 [rows, hidden] -> the same in the model's dtype, each row of mean square 1, times `weight`."""
        return (functional.rms_norm(x, weight.shape, None, self.config.epsilon) * weight).to(self.dtype)


class Reader:
    """Reads the weights in the order the forward uses them, fused and packed as it goes."""

    def __init__(
        self, config: Config, dtype: torch.dtype, source: Source, loaded: Loaded, device: torch.device = CPU
    ) -> None:
        self.config, self.dtype, self.source, self.loaded = config, dtype, source, loaded
        self.device = device
        c = config
        width, kv_width = c.heads * c.head_dim, c.kv_heads * c.head_dim
        self.attention = {"q_proj": width, "k_proj": kv_width, "v_proj": kv_width}
        self.mlp = {"gate_proj": c.intermediate, "up_proj": c.intermediate}
        layer = (width + 2 * kv_width) * (c.hidden + c.qkv_bias) + c.hidden * (width + c.out_bias)
        layer += 2 * c.intermediate * (c.hidden + c.mlp_bias) + c.hidden * (c.intermediate + c.mlp_bias)
        layer += 2 * c.hidden + 2 * c.head_dim * c.qk_norm
        elements = c.layers * layer + c.hidden + c.vocabulary * c.hidden * (1 if c.tied else 2)
        self.total, self.done = elements * dtype.itemsize, 0
        # one weight at a time is read here, then packed from here
        self.scratch = torch.empty(0, dtype=dtype)

    def model(self) -> tuple[Tensor, Tensor, Linear, tuple[Layer, ...]]:
        c = self.config
        embedding = self.tensor("model.embed_tokens.weight", c.vocabulary, c.hidden)
        layers = tuple(self.layer(f"model.layers.{index}") for index in range(c.layers))
        norm = self.tensor("model.norm.weight", c.hidden)
        if c.tied:  # the embedding is looked up row by row, so its memory cannot be packed
            head = Linear(embedding, pack=False)
        else:
            head = self.linear("", {"lm_head": c.vocabulary}, c.hidden, bias=False)
        self.scratch = torch.empty(0, dtype=self.dtype)
        assert self.done == self.total, f"read {self.done} bytes of {self.total}"
        return embedding, norm, head, layers

    def layer(self, name: str) -> Layer:
        c = self.config
        head_norm = None
        if c.qk_norm:
            query, key = (self.tensor(f"{name}.self_attn.{n}_norm.weight", c.head_dim) for n in ("q", "k"))
            head_norm = torch.cat((query.expand(c.heads, -1), key.expand(c.kv_heads, -1)))
        return Layer(
            before_attention=self.tensor(f"{name}.input_layernorm.weight", c.hidden),
            before_mlp=self.tensor(f"{name}.post_attention_layernorm.weight", c.hidden),
            qkv=self.linear(f"{name}.self_attn.", self.attention, c.hidden, c.qkv_bias),
            head_norm=head_norm,
            out=self.linear(f"{name}.self_attn.", {"o_proj": c.hidden}, c.heads * c.head_dim, c.out_bias),
            gate_up=self.linear(f"{name}.mlp.", self.mlp, c.hidden, c.mlp_bias),
            down=self.linear(f"{name}.mlp.", {"down_proj": c.hidden}, c.intermediate, c.mlp_bias),
        )

    def linear(self, prefix: str, parts: dict[str, int], columns: int, bias: bool) -> Linear:
        """One `Linear` whose outputs are those of all `parts` (name: outputs) in turn."""
        outputs = sum(parts.values())
        if self.device.type == "cpu" and packs((outputs, columns), self.dtype):
            if self.scratch.numel() < outputs * columns:
                self.scratch = torch.empty(outputs * columns, dtype=self.dtype)
            weight = self.scratch[: outputs * columns].view(outputs, columns)
        else:
            weight = torch.empty(outputs, columns, dtype=self.dtype, device=self.device)
        self.rows([f"{prefix}{part}.weight" for part in parts], list(parts.values()), weight)
        biases = None
        if bias:
            biases = torch.empty(outputs, dtype=self.dtype, device=self.device)
            self.rows([f"{prefix}{part}.bias" for part in parts], list(parts.values()), biases)
        return Linear(weight, biases)

    def rows(self, names: Sequence[str], counts: Sequence[int], into: Tensor) -> None:
        for name, rows in zip(names, torch.split(into, list(counts)), strict=True):
            self.read(name, rows)

    def tensor(self, name: str, *shape: int) -> Tensor:
        result = torch.empty(shape, dtype=self.dtype, device=self.device)
        self.read(name, result)
        return result

    def read(self, name: str, into: Tensor) -> None:
        self.source.read(name, into)
        self.done += into.nbytes
        self.loaded(self.done, self.total)
