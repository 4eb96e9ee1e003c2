"""hibari: English speech at 24 kHz. The `hibari` package does spelling, network and signal processing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnic.runtime.audio import quicken
from omnic.runtime.edges import Segmenter
from omnic.runtime.spoken import Phrases
from omnic.runtime.weights import Checkpoint, Missing

BUNDLED = "heart"  # the one voice in the package; hibari would download any other
LONGEST = 400  # phonemes that the network is given at once
_SILENT = frozenset(" ;:,.!?—…\"'“”‘’()[]ˈˌ")
_LONG_NUMBER = re.compile(r"\d[\d,.]{15,}")  # beyond the number words that hibari has
_WORD = 40  # characters
_RUN = re.compile(rf"\S{{{_WORD + 1},}}")
_TIMES = re.compile(r"(?<=\d) ?\* ?(?=\d)")


def load(checkpoint: Checkpoint, threads: int) -> Voice:
    """The voice of an installed hibari-tts; `threads` are ONNX Runtime's, for one phrase. Raises Missing."""
    try:
        from hibari import Hibari  # type: ignore[import-untyped]  # it ships no types
    except ImportError as error:
        raise Missing(f"model `{checkpoint.model.name}` needs the package hibari-tts: {error}") from None
    network = next(iter(checkpoint.files("hibari.onnx")), None)
    if network is None:
        raise Missing(f"model `{checkpoint.model.name}` lists no hibari.onnx: build again")
    return Voice(Hibari(voice=BUNDLED, model=str(network), threads=threads))


class Voice:
    """Reads phrases aloud. `decode` may be called from several threads at once."""

    parts = ("synthesize",)
    rate_hz = 24_000
    options: Mapping[str, Any] = MappingProxyType({"speed": 1.0, "voice": BUNDLED})

    def __init__(self, hibari: Any) -> None:
        self._hibari = hibari

    def warm_up(self) -> None:
        """Has hibari load what it loads late (lexicon, tagger, network for unknown words), and runs it once."""
        self.decode("Warm up, zyxxly.", np.random.default_rng(0), speed=1.5, voice=BUNDLED)

    def units(self, segmenter: Segmenter | None) -> Phrases:
        """What makes phrases of the text of one request. With a segmenter, it cuts the text first."""
        return Phrases(segmenter)

    def decode(self, unit: str, noise: np.random.Generator, *, speed: float, voice: str) -> NDArray[np.float32]:
        """A phrase as sound, float32 [samples]; no samples if nothing in it can be said in English.

        Asked for more than its own pace, hibari lags behind, so it speaks at that pace and is quickened after; asked
        for less, it follows within a tenth (benchmarks/pace.py).
        """
        if voice != BUNDLED:
            raise ValueError(f"no voice `{voice}`; there is {BUNDLED}")
        parts = [
            self._hibari.from_ids(self._hibari.ids(part), min(speed, 1.0), noise)
            for phonemes in self._hibari.phonemize(pronounceable(unit))
            if not _SILENT.issuperset(phonemes)
            for part in split(phonemes)
        ]
        sound = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return quicken(sound, self.rate_hz, speed) if speed > 1.0 else sound


def pronounceable(text: str) -> str:
    """`text` as hibari can read it: digits of any script as 0 to 9, numbers too long for words digit by digit, what is
    longer than any word in parts."""
    digits = (str(unicodedata.digit(c)) if c.isdigit() and not c.isascii() and c not in "²³" else c for c in text)
    text = _LONG_NUMBER.sub(lambda number: " ".join(filter(str.isdigit, number[0])), "".join(digits))
    return _RUN.sub(lambda run: " ".join(_parts(run[0])), _TIMES.sub(" × ", text))


def _parts(run: str) -> list[str]:
    """A run of characters in parts of at most _WORD, cut behind signs where there are any. One of letters alone is a
    word, which hibari reads at once; for others it tries all ways to part them, which takes the cube of their length.
    """
    parts = []
    while len(run) > _WORD and not run.isalpha():
        at = next((i for i in range(_WORD, 0, -1) if not run[i - 1].isalnum()), _WORD)
        parts.append(run[:at])
        run = run[at:]
    return [*parts, run]


def split(phonemes: str) -> list[str]:
    """`phonemes` in parts of at most LONGEST, cut between words where there are any."""
    parts = []
    while len(phonemes) > LONGEST:
        at = phonemes.rfind(" ", 1, LONGEST + 1)
        at = LONGEST if at < 0 else at
        parts.append(phonemes[:at])
        phonemes = phonemes[at:].lstrip()
    return [*parts, phonemes] if phonemes else parts
