"""The captions: `captions.json`, written for this model, and the rules it keeps.

An entry has the emoji, its name in Unicode's CLDR, eight training captions, and four test captions: things a person
might type for it, which no training caption says.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).parent / "captions.json"
_ARTICLES = ("a", "an", "the", "some")
_SMALL = {
    # words that say nothing of what is in the picture
    *_ARTICLES, "and", "at", "by", "for", "from", "full", "in", "into", "is", "it", "like", "little", "made", "many",
    "me", "my", "of", "on", "one", "or", "out", "so", "something", "someone", "that", "this", "to", "up", "what",
    "which", "who", "with", "you", "your",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One emoji and what is said of it."""

    emoji: str
    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]


def load(file: Path = FILE) -> list[Entry]:
    """All entries, checked. Raises ValueError that names every rule that is broken."""
    rows = json.loads(file.read_text(encoding="utf-8"))
    entries = [Entry(row["emoji"], row["name"], tuple(row["train"]), tuple(row["test"])) for row in rows]
    if faults := broken(entries):
        raise ValueError("captions.json: " + "; ".join(faults))
    return entries


def broken(entries: Sequence[Entry]) -> list[str]:
    """What is wrong with the captions: too few, said of two emoji, or a test caption that is a training caption.

    Captions are compared as `plain` gives them.
    """
    faults = [f"{e.emoji} has {len(e.train)} + {len(e.test)} captions" for e in entries
              if (len(e.train), len(e.test)) != (8, 4)]  # fmt: skip
    told: dict[str, set[str]] = defaultdict(set)  # a caption, and the emoji it is said of
    for entry in entries:
        for caption in (entry.name, *entry.train, *entry.test):
            told[plain(caption)].add(entry.emoji)
    faults += [f"`{caption}` is said of {' '.join(sorted(of))}" for caption, of in told.items() if len(of) > 1]
    trained = {plain(caption) for e in entries for caption in (e.name, *e.train)}
    faults += [f"`{caption}` tests and trains" for e in entries for caption in e.test if plain(caption) in trained]
    if len({e.emoji for e in entries}) < len(entries):
        faults.append("an emoji has two entries")
    return faults


def plain(caption: str) -> str:
    """A caption without case, punctuation and leading articles."""
    words = re.sub(r"[^a-z0-9]+", " ", caption.lower().replace("'", "")).split()
    while len(words) > 1 and words[0] in _ARTICLES:
        words = words[1:]
    return " ".join(words)


def is_far(entry: Entry, caption: str) -> bool:
    """Whether `caption` shares no word of content, as spelled, with the name and training captions of its emoji."""
    known = {word for text in (entry.name, *entry.train) for word in plain(text).split()}
    return not (set(plain(caption).split()) - _SMALL) & known
