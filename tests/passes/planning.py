"""A source text planned, as `omnic plan` does it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from omnic.catalog.resolve import resolve
from omnic.diagnostics import Sink, render
from omnic.dsl.check import check
from omnic.dsl.lower import lower
from omnic.dsl.parse import parse
from omnic.ir.pipeline import Pipeline
from omnic.passes import DEFAULT, Context, Pass, run
from omnic.source import Source

ANSWER = """\
pipeline answer {
  model lm = random("llama")
  input messages: chat<text, tokens = 256>
  output reply: text
  stage think = lm.generate { max_tokens = 128 }
  messages -> think.messages
  think.text -> reply
  serve chat.completions
}
"""


@dataclass(frozen=True)
class Planned:
    pipeline: Pipeline
    context: Context
    sink: Sink

    @property
    def said(self) -> str:
        """What the user is told."""
        return render(self.sink.diagnostics, "full")

    @property
    def ids(self) -> list[str]:
        return [d.id for d in self.sink.diagnostics]


def plan(
    text: str,
    *,
    deploy: str | None = None,
    sets: tuple[str, ...] = (),
    target: str | None = None,
    base: Path = Path(),
    passes: tuple[Pass, ...] = DEFAULT,
) -> Planned:
    """The pipeline of `text` after `passes`. Mistakes that passes find are in the sink; earlier ones fail the test."""
    sink = Sink()
    file = parse(Source(str(base / "answer.omni"), text), sink)
    checked = file and check(file, base=base, resolve=resolve, sink=sink)
    lowered = lower(checked, None, deploy, sets, sink) if checked and not sink.has_errors else None
    assert lowered is not None, render(sink.diagnostics)
    context = Context.make(lowered, target=target, sink=sink)
    assert context is not None, render(sink.diagnostics)
    return Planned(run(passes, lowered.pipeline, context), context, sink)


def row(text: str, decision: str) -> list[str]:
    """The cells of a decision in a plan as text, spaces collapsed."""
    line = next(line for line in text.splitlines() if re.search(rf"(^|\s){re.escape(decision)}\s", line))
    return re.split(r"\s{2,}", line.strip())
