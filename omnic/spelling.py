"""Which word was probably meant: `nearest`, `did_you_mean`."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` is most likely a slip of, or None.

    A slip is at most two letters or a third of the word away (added, dropped, changed or swapped with a
    neighbour), and leaves at least half of the word as it was.
    """
    limit = max(2, len(word) // 3)
    best: tuple[int, str] | None = None
    for candidate in candidates:
        if candidate == word:
            continue
        distance = _distance(word.lower(), candidate.lower(), limit)
        if distance is not None and 2 * distance <= len(word) and (best is None or distance < best[0]):
            best = distance, candidate
    return best and best[1]


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """``did you mean `hidden`?``, or nothing."""
    found = nearest(word, candidates)
    return f"did you mean `{found}`?" if found else ""


def _distance(a: str, b: str, limit: int) -> int | None:
    """Edits that turn `a` into `b`, if there are no more than `limit`."""
    if abs(len(a) - len(b)) > limit:
        return None
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, char in enumerate(a):
        before, last, row = row, before, [i + 1]
        for j, other in enumerate(b):
            cost = min(row[j] + 1, before[j + 1] + 1, before[j] + (char != other))
            if i and j and char == b[j - 1] and a[i - 1] == other:
                cost = min(cost, last[j - 1] + 1)
            row.append(cost)
        if min(row) > limit:
            return None
    return row[-1] if row[-1] <= limit else None
