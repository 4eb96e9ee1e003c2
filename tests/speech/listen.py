"""A listener: PocketSphinx writes down what it hears, and `errors` counts what it got wrong."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnic.runtime.audio import to_int16

RATE_HZ = 16_000


class Listener:
    """Hears English. It settles into a voice, so the same sounds in the same order are heard the same."""

    def __init__(self) -> None:
        from pocketsphinx import Decoder

        self._decoder: Any = Decoder(samprate=RATE_HZ, loglevel="FATAL")

    def hear(self, sound: NDArray[np.float32]) -> list[str]:
        """The words in `sound`, float32 [samples] at 16 kHz."""
        self._decoder.start_utt()
        self._decoder.process_raw(to_int16(sound).tobytes(), no_search=False, full_utt=True)
        self._decoder.end_utt()
        found = self._decoder.hyp()
        return words(found.hypstr) if found else []


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def errors(said: list[str], heard: list[str]) -> int:
    """The fewest words to change, add or leave out that make one of the other."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        corner, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            corner, row[j] = row[j], min(corner + (word != other), row[j] + 1, row[j - 1] + 1)
    return row[-1]
