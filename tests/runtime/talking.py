"""Generate stages to test with: tiny models with random weights, and a parrot that needs none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from omnic.catalog.resolve import ModelSource, resolve
from omnic.manifest import Model
from omnic.runtime import families
from omnic.runtime.device import Device
from omnic.runtime.flow import Finished, Flow
from omnic.runtime.generate import Generate, Rows
from omnic.runtime.language import Span
from omnic.runtime.sampling import draw, keep_top_k, keep_top_p, penalise, scale
from omnic.runtime.text import Codec
from omnic.runtime.weights import Checkpoint, locate

TINY: Mapping[str, Any] = {
    "vocab_size": 400, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048,
}  # fmt: skip
SETTINGS: Mapping[str, Any] = {
    "dtype": "float32", "slots": 4, "context": 256, "prompt": 192, "prefill_chunk": 16,
}  # fmt: skip


def sample(logits: Tensor, rows: Rows) -> Tensor:
    """As generated where every knob is open."""
    logits = penalise(logits, rows.seen, rows.repetition_penalty)
    logits = scale(logits, rows.temperature)
    logits = keep_top_k(logits, rows.top_k)
    logits = keep_top_p(logits, rows.top_p)
    return draw(logits, rows.uniform, rows.temperature)


def checkpoint(kind: str, name: str, base: Path = Path(), **options: Any) -> Checkpoint:
    """What a build would find of `kind(name, **options)`."""
    found = resolve(ModelSource(kind, name, tuple(options.items())), base)
    model = Model("lm", kind, name, found.family, found.format, found.config, found.files, found.revision)
    return locate(model, base)


def tiny(family: str = "llama", **options: Any) -> Checkpoint:
    return checkpoint("random", family, **{**TINY, "eos_token_id": 2, **options})


@contextmanager
def loaded(checkpoint: Checkpoint, **settings: Any) -> Iterator[Generate]:
    """A stage at work, closed afterwards."""
    device = Device("cpu", threads=1)
    stage = Generate("think", checkpoint, device, **{**SETTINGS, "sample": sample, **settings})
    try:
        stage.load(lambda name, done, total: None)
        yield stage
    finally:
        asyncio.run(stage.close())
        device.close()


@dataclass(frozen=True)
class Said:
    text: str
    tokens: tuple[int, ...]
    finished: Finished


async def ask(stage: Generate, text: str, seed: int = 0, **inputs: Any) -> Said:
    """The whole answer to one message."""
    flow = Flow(seed)
    running = stage.start(flow, **{"messages": said(text), "max_tokens": 32, "temperature": 0.0, **inputs})
    flow.output("text", running.text, window=1 << 20)
    flow.output("tokens", running.tokens, window=1 << 20)
    texts: list[str] = []
    tokens: list[int] = []
    async for event in flow:
        if isinstance(event, Finished):
            return Said("".join(texts), tuple(tokens), event)
        (texts if event.output == "text" else tokens).append(event.value)
    raise AssertionError("a flow ends with Finished")


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


# --- the parrot -------------------------------------------------------------------------------------------------------

VOCABULARY = 3000
PARROT = Checkpoint(Model("lm", "random", "parrot", "parrot", "random", {}), None)


class Parrot:
    """A language model that says back what the last message said, then ends. Its tokens are `Codec.made_up`'s.

    Needs no weights: logits are those of certainty. `seconds` are what a forward takes, `token_seconds` what each
    token of it adds.
    """

    def __init__(self) -> None:
        self.vocabulary, self.weight_bytes = VOCABULARY, 0
        self.codec = Codec.made_up(VOCABULARY)
        self.slots: dict[int, list[int]] = {}
        self.forwards: list[list[Span]] = []

    def kv_bytes(self, slots: int, context: int) -> int:
        return 0

    def allocate(self, slots: int, context: int) -> None:
        self.context = context

    def forward(self, spans: Sequence[Span]) -> Tensor:
        self.forwards.append(list(spans))
        assert len({span.slot for span in spans}) == len(spans), "one span a slot"
        rows = []
        for span in spans:
            known = self.slots.setdefault(span.slot, [])
            del known[span.start :]
            assert len(known) == span.start, "spans of a slot follow each other"
            known += span.tokens
            assert len(known) <= self.context
            if span.logits:
                rows.append(self._next(known))
        logits = torch.zeros(len(rows), self.vocabulary)
        if rows:
            logits[torch.arange(len(rows)), torch.tensor(rows)] = 100.0
        return logits

    def _next(self, known: list[int]) -> int:
        """Where the last mark but one is that of the message, and the answer follows the line after the last."""
        marks = [i for i, token in enumerate(known) if token in (1, 2)]
        line = self.codec.encode("\n")[0]
        if len(marks) < 3:
            return line
        message = known[known.index(line, marks[-3]) + 1 : marks[-2]]
        answer = known[known.index(line, marks[-1]) + 1 :]
        return [*message, 2][len(answer)]


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> Parrot:
    """The model that stages made of the checkpoint `PARROT` load."""
    bird = Parrot()
    module = SimpleNamespace(load=lambda checkpoint, dtype, loaded: bird)
    monkeypatch.setattr(families, "load", lambda family: module)
    return bird
