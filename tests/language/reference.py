"""`docs/language.md`, made of the pages beside this file: `python -m tests.language.reference` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.language.cases import cases, pages

TARGET = Path(__file__).parent.parent.parent / "docs" / "language.md"
_FENCE = re.compile(r"^```(?P<kind>omni|python|ir|formatted)(?P<words>(?: \S+)*)$", re.MULTILINE)


def reference() -> str:
    """All pages as one, with contents before and an index of diagnostics behind."""
    texts = [page.read_text(encoding="utf-8") for page in pages()]
    note = "<!-- Made of tests/language/*.md by `python -m tests.language.reference`: change those. -->"
    return "\n".join((note, "", *_contents(texts), "", *map(_page, texts), *_index(), ""))


def _contents(texts: list[str]) -> Iterator[str]:
    yield "# omnic: the language\n"
    for text in texts:
        title = text.partition("\n")[0].removeprefix("# ")
        yield f"- [{title}](#{anchor(title)})"
    yield "- [Index of diagnostics](#index-of-diagnostics)"


def _page(text: str) -> str:
    """A page one level down, with file names and flags in words."""
    shifted, code = [], False
    for line in text.splitlines():
        code ^= line.startswith("```")
        shifted.append(f"#{line}" if line.startswith("#") and not code else line)
    return _FENCE.sub(_fence, "\n".join(shifted)) + "\n"


def _fence(match: re.Match[str]) -> str:
    kind, words = match["kind"], match["words"].split()
    shown = {"ir": "text", "formatted": "omni"}.get(kind, kind)
    if len(words) == 1 and "." in words[0]:
        return f"`{words[0]}`:\n\n```{shown}"
    flags = " ".join(f"--{word} {value}" for word, value in zip(words[::2], words[1::2], strict=True))
    lead = {"ir": "Lowered:\n\n", "formatted": "Formatted:\n\n"}.get(kind, f"With `{flags}`:\n\n" if flags else "")
    return f"{lead}```{shown}"


def _index() -> Iterator[str]:
    """Every diagnostic and the section that is most about it."""
    best: dict[str, tuple[int, str]] = {}
    for case in (case for page in pages() for case in cases(page)):
        shown = set(re.findall(r"^(?:error|warning)\[([a-z-]+)\]", case.text, re.MULTILINE))
        for found in shown:
            best[found] = min(best.get(found, (99, "")), (len(shown), case.title), key=lambda one: one[0])
    yield "## Index of diagnostics\n"
    yield from (f"- `{found}`: [{title}](#{anchor(title)})" for found, (_, title) in sorted(best.items()))


def anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
