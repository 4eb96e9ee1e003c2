"""Decoders that run through transformers' own forward: found by the catalog, behind the same protocol."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from omnic import driver
from omnic.catalog.kin import KIN
from omnic.catalog.resolve import ModelSource, resolve
from omnic.diagnostics import Sink, render
from omnic.runtime.families import load
from omnic.runtime.language import Span
from omnic.runtime.pipeline import generated
from omnic.runtime.text import Codec
from omnic.runtime.weights import Checkpoint, Damaged
from tests.runtime.talking import TINY, ask, checkpoint, loaded

TOKENS = tuple(torch.randint(3, 300, (40,), generator=torch.Generator().manual_seed(7)).tolist())
OPTIONS: dict[str, dict[str, Any]] = {"mistral": {"sliding_window": 24}, "gemma": {"head_dim": 32}}


def written(kind: str, folder: Path) -> Any:
    """A tiny checkpoint of transformers' making; its model. Mistral's window is shorter than what is asked of it."""
    make = getattr(transformers, KIN[kind].architecture)
    options = {"eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0, "initializer_range": 0.2}
    torch.manual_seed(0)
    model = make(make.config_class(**TINY, **options, **OPTIONS.get(kind, {}))).eval()
    model.save_pretrained(folder)
    Codec.made_up(400)._tokenizer.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", params=KIN)
def kin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Checkpoint, Any]:
    folder = tmp_path_factory.mktemp(request.param)
    model = written(request.param, folder)
    return checkpoint("path", ".", folder), model


def loading(found: Checkpoint, dtype: str = "float32") -> Any:
    return load(found.model.family).load(found, dtype, lambda done, total: None)


def test_logits_are_transformers_own_in_pieces_and_beside_others(kin: tuple[Checkpoint, Any]) -> None:
    found, theirs = kin
    with torch.inference_mode():
        expected = theirs(torch.tensor([TOKENS])).logits[0]
        model = loading(found)
        model.allocate(2, 64)
        model.forward([Span(1, 0, TOKENS[:30], False), Span(0, 0, TOKENS[10:20], False)])
        logits = model.forward([Span(0, 10, TOKENS[20:21], True), Span(1, 30, TOKENS[30:31], True)])
    assert logits.shape == (2, 400)
    torch.testing.assert_close(logits[1], expected[30], rtol=0, atol=1e-4)


def test_bytes_are_those_of_the_plan(kin: tuple[Checkpoint, Any]) -> None:
    found, theirs = kin
    assert found.root is not None
    part = resolve(ModelSource("path", "."), found.root).parts["generate"]
    for dtype, precision in (("float32", "fp32"), ("bfloat16", "bf16")):
        model, cost = loading(found, dtype), dict(part.costs)[precision]
        assert model.weight_bytes == cost.weight_bytes
        assert model.kv_bytes(2, 64) == 2 * 64 * cost.kv_bytes_per_token
    assert dict(part.costs)["fp32"].weight_bytes == sum(p.nbytes for p in theirs.parameters())


def test_a_stage_answers_with_it_as_transformers_generates(kin: tuple[Checkpoint, Any]) -> None:
    found, theirs = kin
    with loaded(found) as stage:
        answers = asyncio.run(both(stage))
        prompt = stage.codec.prompt([{"role": "user", "content": "hello there"}])
    expected = theirs.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=0)
    assert [list(a.tokens) for a in answers] == 2 * [expected[0, len(prompt) :].tolist()]


async def both(stage: Any) -> list[Any]:
    return await asyncio.gather(*(ask(stage, "hello there", max_tokens=20) for _ in range(2)))


@pytest.mark.parametrize("kind", KIN)
def test_what_a_config_leaves_out_is_the_default_of_its_class(kind: str) -> None:
    theirs = getattr(transformers, KIN[kind].architecture).config_class()
    assert (theirs.model_type, theirs.tie_word_embeddings) == (kind, KIN[kind].tied)
    shared = theirs.hidden_size // theirs.num_attention_heads
    assert (getattr(theirs, "head_dim", None) or shared) == (KIN[kind].head_dim or shared)


PIPELINE = """\
pipeline small {
  model lm = path("weights")

  input  messages: chat<text, tokens = 64>
  output reply: text

  stage think = lm.generate { max_tokens = 8, temperature = 0, precision = fp32 }

  messages   -> think.messages
  think.text -> reply

  serve chat.completions
}
"""


def test_a_pipeline_of_one_checks_builds_and_runs(tmp_path: Path) -> None:
    written("mistral", tmp_path / "weights")
    (tmp_path / "small.omni").write_text(PIPELINE)
    sink = Sink()
    built = driver.build(tmp_path / "small.omni", tmp_path / "build", sink)
    assert built is not None, render(sink.diagnostics)

    async def answer() -> Any:
        async with generated(tmp_path / "build", "Small").load() as small:
            asked: Any = small.chat_completions_reply  # type: ignore[attr-defined]  # made by the build
            return await asked(messages=[{"role": "user", "content": "hello there"}]).result()

    assert 0 < asyncio.run(answer())["finished"].completion_tokens <= 8


@pytest.fixture
def mistral(tmp_path: Path) -> Checkpoint:
    written("mistral", tmp_path)
    return checkpoint("path", ".", tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda tensors: tensors.pop("model.norm.weight"), r"tensor model\.norm\.weight is missing"),
        (lambda tensors: tensors.update(odd=torch.zeros(3)), "tensor odd is unexpected"),
        (lambda tensors: tensors.update({"model.norm.weight": torch.zeros(3)}), r"cannot load it|is mismatched"),
    ],
)
def test_tensors_that_are_not_those_of_the_model_are_refused(mistral: Checkpoint, change: Any, says: str) -> None:
    """transformers would go on, with random weights in their place."""
    assert mistral.root is not None
    file = mistral.root / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(Damaged, match=says):
        loading(mistral)


def test_random_and_broken_ones_are_refused(mistral: Checkpoint) -> None:
    assert mistral.root is not None
    with pytest.raises(Damaged, match="is random"):
        loading(replace(mistral, root=None))
    config = json.loads((mistral.root / "config.json").read_text())
    (mistral.root / "config.json").write_text(json.dumps(config | {"model_type": "nowhere"}))
    with pytest.raises(Damaged, match=str(mistral.root)):
        loading(mistral)
