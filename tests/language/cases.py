"""The cases of the language: what the `*.md` files beside this one say, and what omnic answers to it.

A case is a heading of the second or third level with a block ```` ```omni ````. Blocks with a file name
(```` ```python glue.py ````) are files beside it; words after `omni` are how it is lowered: `deploy NAME`,
`set STAGE.KEY=VALUE`. What follows is what comes out: `text` for diagnostics, `formatted` for what `omnic fmt` makes
of it, `ir` for what it is lowered to. A case without a `text` block holds up, without a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from omnic.diagnostics import Sink, render
from omnic.dsl.check import check
from omnic.dsl.fmt import format
from omnic.dsl.lower import lower
from omnic.dsl.parse import parse
from omnic.ir.text import dump
from omnic.source import Source
from tests.language.catalog import resolve

HERE = Path(__file__).parent
NAME = "example.omni"
_BLOCK = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(?=###? )", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the words after that, what it holds, and where in the case it stands."""

    kind: str
    words: tuple[str, ...]
    body: str
    start: int
    end: int


@dataclass(frozen=True)
class Case:
    file: str
    title: str
    text: str  # the whole section, from its heading to the next

    @property
    def blocks(self) -> list[Block]:
        found = []
        for match in _BLOCK.finditer(self.text):
            kind, *words = match["info"].split()
            found.append(Block(kind, tuple(words), match["body"], match.start(), match.end()))
        return found

    @property
    def source(self) -> Block | None:
        return next((b for b in self.blocks if b.kind == "omni" and not _named(b)), None)

    @property
    def files(self) -> list[Block]:
        return [b for b in self.blocks if _named(b)]

    @property
    def results(self) -> dict[str, str]:
        return {b.kind: b.body for b in self.blocks if b.kind in ("text", "formatted", "ir")}


def _named(block: Block) -> bool:
    return len(block.words) == 1 and "." in block.words[0]


def sections(text: str) -> list[str]:
    return _HEADING.split(text)


def cases(path: Path) -> list[Case]:
    """The cases of a file, in order."""
    found = [Case(path.name, s.partition("\n")[0].strip("# "), s) for s in sections(path.read_text(encoding="utf-8"))]
    return [case for case in found if case.source is not None]


def pages() -> list[Path]:
    """The pages of the language, in order."""
    return sorted(HERE.glob("[0-9]*.md"))


def outcome(case: Case) -> dict[str, str]:
    """What comes out of a case. The working directory is an empty one: its files are put there."""
    assert case.source is not None
    for block in case.files:
        path = Path(block.words[0])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.body, encoding="utf-8")
    return dict(_outcome(case, case.source))


def _outcome(case: Case, block: Block) -> Iterator[tuple[str, str]]:
    source, sink = Source(NAME, block.body), Sink()
    if "formatted" in case.results:
        yield "formatted", format(source, sink) or ""
    file = parse(source, sink)
    checked = file and check(file, base=Path(), resolve=resolve, sink=sink)
    if checked and (len(checked.pipelines) == 1 or block.words):
        given = list(zip(block.words[::2], block.words[1::2], strict=True))
        deploy = next((name for word, name in given if word == "deploy"), None)
        made = lower(checked, None, deploy, [text for word, text in given if word == "set"], sink)
        if made and "ir" in case.results:
            yield "ir", dump(made.pipeline)
    if sink.diagnostics:
        yield "text", render(sink.diagnostics)


def renewed(case: Case) -> str:
    """The section with what comes out of it today."""
    made, text = outcome(case), case.text
    if "text" in made and "text" not in case.results:
        end = case.blocks[-1].end
        text = f"{text[:end]}\n\n```text\n{made['text']}```{text[end:]}"
    for block in reversed(case.blocks):
        if block.kind in ("text", "formatted", "ir"):
            before, after = text[: block.start], text[block.end :]
            if block.kind in made:
                text = f"{before}```{block.kind}\n{made[block.kind]}```{after}"
            else:
                text = before.rstrip("\n") + after
    return text
