"""The decoder of a GPU against that of the CPU: the same logits, whatever shares the step (tiny, float32)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from omnic.runtime.families import llama
from omnic.runtime.families.llama_gpu import GpuLlama
from omnic.runtime.home import Home
from omnic.runtime.kernels.sample import State
from omnic.runtime.language import Span
from tests.runtime.talking import tiny

CPU = torch.device("cpu")


def prefill(model: GpuLlama, span: Span, spare: int) -> Tensor:
    """`spare` rows more are nobody's."""

    def ints(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32)

    count = len(span.tokens)
    return model.prefill(
        ints(*span.tokens, *[0] * spare),
        ints(*[span.slot] * count, *[model.slots] * spare),
        ints(*range(span.start, span.start + count), *[0] * spare),
        ints(count - 1),
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@torch.inference_mode()
def test_prompts_in_pieces_and_steps_give_the_logits_of_the_cpu(family: str) -> None:
    torch.manual_seed(0)
    checkpoint = tiny(family, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16)
    plain = llama.load(checkpoint, "float32", lambda done, total: None)
    plain.allocate(3, 128)
    paged = llama.load_paged(checkpoint, Home("float32"), 3, 128, lambda done, total: None)
    assert isinstance(paged, GpuLlama)
    prompt = tuple(torch.randint(3, 400, (70,)).tolist())
    for span, spare in ((Span(2, 0, prompt[:10], True), 0), (Span(2, 10, prompt[10:], True), 4),
                        (Span(0, 0, prompt[:5], True), 3)):  # fmt: skip
        torch.testing.assert_close(prefill(paged, span, spare), plain.forward([span]), rtol=1e-4, atol=1e-4)
    state = State.of(3, CPU)
    state.tokens[:3] = torch.tensor([7, 8, 9])
    state.positions[:3] = torch.tensor([5, 0, 70])
    for slots in ([2], [0, 2, 3, 3]):  # alone, and with rows that are nobody's
        spans = [Span(s, int(state.positions[s]), (int(state.tokens[s]),), True) for s in slots if s < 3]
        logits = paged.step(torch.tensor(slots, dtype=torch.int32), state)
        torch.testing.assert_close(logits[: len(spans)], plain.forward(spans), rtol=1e-4, atol=1e-4)
