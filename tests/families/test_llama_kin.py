"""Decoders that run through transformers' own forward, behind the same protocol."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from omnic.contract.files import File
from omnic.manifest import Model
from omnic.runtime.families import load
from omnic.runtime.language import Span
from omnic.runtime.text import Codec
from omnic.runtime.weights import Checkpoint, Damaged
from tests.runtime.talking import TINY, ask, loaded

TOKENS = tuple(torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(7)).tolist())


@pytest.fixture(scope="module")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Any]:
    """A tiny Mistral whose window of attention is shorter than what is asked of it."""
    from transformers import MistralConfig, MistralForCausalLM

    folder = tmp_path_factory.mktemp("mistral")
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**TINY, sliding_window=24, eos_token_id=2, initializer_range=0.2)).eval()
    model.save_pretrained(folder)
    Codec.made_up(400)._tokenizer.save_pretrained(folder)
    files = tuple(File(path.name, path.stat().st_size) for path in sorted(folder.iterdir()))
    found = Model("lm", "path", str(folder), "transformers", "safetensors", {"eos_token_id": [2]}, files)
    return Checkpoint(found, folder), model


def test_logits_are_transformers_own_in_pieces_and_beside_others(mistral: tuple[Checkpoint, Any]) -> None:
    checkpoint, theirs = mistral
    with torch.inference_mode():
        expected = theirs(torch.tensor([TOKENS])).logits[0]
        model = load("transformers").load(checkpoint, "float32", lambda done, total: None)
        model.allocate(2, 64)
        model.forward([Span(1, 0, TOKENS[:30], False), Span(0, 0, TOKENS[10:20], False)])
        logits = model.forward([Span(0, 10, TOKENS[20:21], True), Span(1, 30, TOKENS[30:31], True)])
    assert logits.shape == (2, 400)
    torch.testing.assert_close(logits[1], expected[30], rtol=0, atol=1e-4)


def test_bytes_are_those_of_its_parameters(mistral: tuple[Checkpoint, Any]) -> None:
    checkpoint, theirs = mistral
    model = load("transformers").load(checkpoint, "float32", lambda done, total: None)
    assert model.weight_bytes == sum(p.nbytes for p in theirs.parameters())
    assert model.kv_bytes(2, 64) == 2 * 2 * 2 * 16 * 4 * 2 * 64


def test_a_stage_answers_with_it_as_transformers_generates(mistral: tuple[Checkpoint, Any]) -> None:
    checkpoint, theirs = mistral
    with loaded(checkpoint) as stage:
        answers = asyncio.run(both(stage))
        prompt = stage.codec.prompt([{"role": "user", "content": "hello there"}])
    expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert [list(a.tokens) for a in answers] == 2 * [expected[0, len(prompt) :].tolist()]


async def both(stage: Any) -> list[Any]:
    return await asyncio.gather(*(ask(stage, "hello there", max_tokens=20) for _ in range(2)))


def test_random_and_broken_ones_are_refused(mistral: tuple[Checkpoint, Any], tmp_path: Path) -> None:
    checkpoint, _ = mistral
    for root, why in ((None, "is random"), (tmp_path, str(tmp_path))):
        with pytest.raises(Damaged, match=why):
            load("transformers").load(replace(checkpoint, root=root), "float32", lambda done, total: None)
