"""Tokens a second of a decoder on a GPU: Qwen3's shapes with random weights, prompts of 128 tokens, greedy, in the
captured steps that a generate stage serves with.

Before a size is timed, the logits of 64 steps after the prompt are compared with those of the same weights in float32,
one plain forward over all tokens, and with transformers' Qwen3 in bfloat16 where it is installed; and the tokens of
captured steps with those of the same steps run eagerly. Times are medians between device events around each step. The
floor reads all weights but the embedding's table once at 4.22 TB/s, what a copy moved on an H200.

    python -m benchmarks.decode_gpu [--sizes 0.6b 8b] [--batches 1 16 64] [--steps 128] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Sequence
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.families import llama
from omnic.runtime.families.llama_gpu import GpuLlama
from omnic.runtime.generate_gpu import GpuSteps, Kind
from omnic.runtime.language import Span
from omnic.runtime.sampling import Rows, draw, keep_top_k, keep_top_p, penalise, scale
from omnic.runtime.tensors import Seeded

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1000},
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
             "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
    "8b": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936},
}  # fmt: skip
TARGETS = {("0.6b", 1): 1200, ("8b", 1): 220, ("0.6b", 64): 20_000}  # tokens a second
PROMPT, CHECKED, CONTEXT, CHUNK = 128, 64, 1024, 1024
BANDWIDTH = 4.22e12
WARM_UP = 10


def sample(logits: Tensor, rows: Rows) -> Tensor:
    """As generated where every knob is open."""
    logits = penalise(logits, rows.seen, rows.repetition_penalty)
    logits = scale(logits, rows.temperature)
    logits = keep_top_k(logits, rows.top_k)
    logits = keep_top_p(logits, rows.top_p)
    return draw(logits, rows.uniform, rows.temperature)


class Subject:
    """One size with its weights, its steps, and ways to compute the same otherwise."""

    def __init__(self, size: str, slots: int, device: torch.device) -> None:
        numbers: dict[str, Any] = {
            **SIZES[size], "rms_norm_eps": 1e-6, "tie_word_embeddings": size == "0.6b", "attention_bias": False,
            "attention_output_bias": False, "mlp_bias": False, "qk_norm": True, "rope_theta": 1e6, "rope_scaling": None,
        }  # fmt: skip
        self.config = llama.Config.read(numbers)
        reader = llama.Reader(self.config, torch.bfloat16, Seeded(0), lambda done, total: None, device)
        self.embedding, self.norm, self.head, self.layers = reader.model()
        self.read_bytes = reader.total - (0 if self.config.tied else self.embedding.nbytes)
        self.model = GpuLlama(
            self.config, self.embedding, self.norm, self.head.weight, self.layers, slots, min(CONTEXT, 16 * slots + 512)
        )
        self.steps = GpuSteps(self.model, sample)
        generator = torch.Generator().manual_seed(1)
        self.prompts = torch.randint(0, self.config.vocabulary, (slots, PROMPT), generator=generator)

    def start(self, rows: int) -> None:
        """Runs the prompts of the first `rows` slots; their first tokens are the likeliest."""
        state = self.steps.state
        for slot in range(rows):
            logits = self.steps.prompts.run([Span(slot, 0, tuple(self.prompts[slot].tolist()), True)])
            state.tokens[slot], state.positions[slot] = logits[0].argmax(), PROMPT
            state.seeds[slot], state.drawn[slot] = slot, 0
        self.steps.settings[:] = torch.tensor([0.8, 40, 0.9, 1.0], dtype=torch.float64)

    def logits(self, rows: int, steps: int) -> tuple[list[int], Tensor]:
        """The first slot's tokens, the first from the prompt, and the logits after each but the last: eagerly."""
        self.start(rows)
        steppers, found = self.steps, []
        tokens = [int(steppers.state.tokens[0])]
        slots = torch.arange(rows, dtype=torch.int32, device=self.model.device)
        for _ in range(steps):
            logits = self.model.step(slots, steppers.state)
            steppers.choose(logits, slots, Kind.GREEDY, steppers.out[:rows])
            found.append(logits[0].float().clone())
            tokens.append(int(steppers.out[0]))
        return tokens, torch.stack(found)

    def replayed(self, rows: int, steps: int) -> list[int]:
        """The tokens of captured steps, as `logits` gives them."""
        self.start(rows)
        tokens = [int(self.steps.state.tokens[0])]
        for _ in range(steps):
            self.steps.replay(list(range(rows)), Kind.GREEDY)
            tokens.append(int(self.steps.out[0]))
        return tokens

    def exact(self, tokens: Sequence[int]) -> Tensor:
        """Logits after each of the tokens that follow the first prompt, in float32."""
        c, whole = self.config, torch.cat((self.prompts[0], torch.tensor(tokens))).to(self.model.device)
        count = len(whole)
        angles = torch.outer(torch.arange(count).float(), llama.frequencies(c)).to(self.model.device)
        cosine, sine = angles.cos().repeat(1, 2)[:, None], torch.cat((-angles.sin(), angles.sin()), 1)[:, None]

        def normed(x: Tensor, weight: Tensor) -> Tensor:
            return functional.rms_norm(x, x.shape[-1:], None, c.epsilon) * weight.float()

        x = functional.embedding(whole, self.embedding).float()
        for layer in self.layers:
            heads = functional.linear(normed(x, layer.before_attention), layer.qkv.weight.float())
            heads = heads.view(count, -1, c.head_dim)
            qk, value = heads[:, : c.heads + c.kv_heads], heads[:, c.heads + c.kv_heads :]
            assert layer.head_norm is not None
            qk = normed(qk, layer.head_norm)
            qk = qk * cosine + qk.roll(c.head_dim // 2, -1) * sine
            q, k, v = (part.transpose(0, 1)[None] for part in (qk[:, : c.heads], qk[:, c.heads :], value))
            found = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + functional.linear(found[0].transpose(0, 1).reshape(count, -1), layer.out.weight.float())
            gate, up = functional.linear(normed(x, layer.before_mlp), layer.gate_up.weight.float()).chunk(2, 1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down.weight.float())
        return functional.linear(normed(x[-len(tokens) :], self.norm), self.head.weight.float())

    def peer(self, tokens: Sequence[int]) -> Tensor:
        """The same of transformers' Qwen3 in bfloat16, which borrows the weights."""
        from transformers import Qwen3Config, Qwen3ForCausalLM

        c = self.config
        settings: Any = Qwen3Config(
            vocab_size=c.vocabulary, hidden_size=c.hidden, intermediate_size=c.intermediate,
            num_hidden_layers=c.layers, num_attention_heads=c.heads, num_key_value_heads=c.kv_heads,
            head_dim=c.head_dim, rms_norm_eps=c.epsilon, tie_word_embeddings=c.tied, max_position_embeddings=40960,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta}, attn_implementation="sdpa",  # type: ignore[call-arg]  # taken by the base class, which is not typed
        )  # fmt: skip
        with torch.device("meta"):
            model = Qwen3ForCausalLM(settings)
        held: dict[str, Tensor] = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        held["lm_head.weight"] = self.head.weight
        widths = [c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim]
        for index, layer in enumerate(self.layers):
            at = f"model.layers.{index}"
            assert layer.head_norm is not None
            held |= dict(
                zip(
                    (f"{at}.self_attn.{n}_proj.weight" for n in "qkv"),
                    torch.split(layer.qkv.weight, widths),
                    strict=True,
                )
            )
            held |= {
                f"{at}.input_layernorm.weight": layer.before_attention,
                f"{at}.post_attention_layernorm.weight": layer.before_mlp,
                f"{at}.self_attn.q_norm.weight": layer.head_norm[0],
                f"{at}.self_attn.k_norm.weight": layer.head_norm[-1],
                f"{at}.self_attn.o_proj.weight": layer.out.weight,
                f"{at}.mlp.gate_proj.weight": layer.gate_up.weight[: c.intermediate],
                f"{at}.mlp.up_proj.weight": layer.gate_up.weight[c.intermediate :],
                f"{at}.mlp.down_proj.weight": layer.down.weight,
            }
        borrower: Any = model  # its methods are untyped
        borrower.load_state_dict(held, assign=True)
        borrower.model.rotary_emb = type(borrower.model.rotary_emb)(settings).to(self.model.device)
        whole = torch.cat((self.prompts[0], torch.tensor(tokens))).to(self.model.device)
        found: Tensor = borrower.eval()(whole[None], logits_to_keep=len(tokens)).logits[0].float()
        return found


def error(found: Tensor, against: Tensor) -> float:
    return float((found.double() - against.double()).norm() / against.double().norm())


def checked(subject: Subject, rows: int) -> dict[str, float]:
    """Relative errors of logits, and the share of captured tokens that are the eager ones."""
    tokens, logits = subject.logits(rows, CHECKED)
    exact = subject.exact(tokens[:-1])
    found = {"logits to float32": error(logits, exact)}
    try:
        peer = subject.peer(tokens[:-1])
        found |= {"logits to transformers": error(logits, peer), "transformers to float32": error(peer, exact)}
    except ImportError:
        print("transformers is not installed: no comparison with it")
    captured = subject.replayed(rows, CHECKED)
    found["captured tokens as eager"] = sum(a == b for a, b in zip(captured, tokens, strict=True)) / len(tokens)
    return found


def milliseconds(subject: Subject, rows: int, kind: Kind, steps: int) -> list[float]:
    """Of each step, by device events."""
    subject.start(rows)
    slots = list(range(rows))
    for _ in range(WARM_UP):
        subject.steps.replay(slots, kind)
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]  # type: ignore[no-untyped-call]  # torch left it untyped
    events[0].record()
    for event in events[1:]:
        subject.steps.replay(slots, kind)
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(events)]


def measure(size: str, batches: Sequence[int], steps: int, device: torch.device) -> dict[str, Any]:
    subject = Subject(size, max(batches), device)
    began = time.perf_counter()
    subject.steps.prepare(CHUNK)
    torch.cuda.synchronize()
    record: dict[str, Any] = {
        "prepare_seconds": time.perf_counter() - began,
        "graphs": subject.steps.graphs.captures,
        "graph_pool_bytes": subject.steps.graphs.pool_bytes,
        "floor_tokens_per_second": BANDWIDTH / subject.read_bytes,
        "batches": {},
    }
    for rows in batches:
        agreement = checked(subject, rows)
        print(f"{size}, {rows} rows: " + ", ".join(f"{n} {v:.4f}" for n, v in agreement.items()), flush=True)
        times = {kind.value: milliseconds(subject, rows, kind, steps) for kind in Kind}
        record["batches"][rows] = {
            "agreement": agreement,
            "milliseconds": {n: {"median": statistics.median(t), "least": min(t), "most": max(t)}
                             for n, t in times.items()},
        }  # fmt: skip
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=tuple(SIZES), default=["0.6b", "8b"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--steps", type=int, default=128)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("decode_gpu: needs an NVIDIA GPU, and torch sees none here")
        return
    device = torch.device("cuda", 0)
    with torch.inference_mode():
        results = {size: measure(size, options.batches, options.steps, device) for size in options.sizes}
    print("\n{:6} {:>5} {:26} {:>8} {:>10} {:>8} {:>8}".format(
        "size", "rows", "drawn", "ms", "tokens/s", "target", "floor"))  # fmt: skip
    for size, record in results.items():
        for rows, found in record["batches"].items():
            for name, times in found["milliseconds"].items():
                target = TARGETS.get((size, rows), "") if name == "greedy" else ""
                floor = f"{record['floor_tokens_per_second']:.0f}" if rows == 1 else ""
                rate = rows / times["median"] * 1e3
                print(f"{size:6} {rows:5} {name:26} {times['median']:8.3f} {rate:10.0f} {target:>8} {floor:>8}")
        print(f"{size:6} captured {record['graphs']} graphs in {record['prepare_seconds']:.1f} s,"
              f" {record['graph_pool_bytes'] / 1e6:.0f} MB beside the weights")  # fmt: skip
    if options.json:
        names = ("torch", "triton", "transformers")
        versions = {name: metadata.version(name) for name in names} | {"python": platform.python_version()}
        record = {"device": torch.cuda.get_device_name(), "versions": versions, "prompt": PROMPT, "results": results}
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
