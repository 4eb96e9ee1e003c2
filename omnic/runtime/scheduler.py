"""Which tokens run next: continuous batching over slots, with prompts in chunks. Holds no tensors."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

_WAIT = 2.0  # a step beside which a prompt chunk runs may take so many times a step without: 3 is what is promised
_GRAIN = 8  # tokens that a chunk is a multiple of
_SAMPLES = 33  # latest steps that estimates are made from


@dataclass(eq=False, slots=True)
class Sequence:
    """One request as the scheduler sees it. `computed` of its tokens have their keys and values in the slot."""

    prompt: int  # tokens in the prompt
    slot: int = -1
    computed: int = 0
    generated: int = 0
    turn: int = 0  # in order of arrival

    @property
    def prefilling(self) -> bool:
        """Whether part of the prompt is still to run. The last part may be a single token, so only this tells."""
        return self.computed < self.prompt

    @property
    def pending(self) -> int:
        """Tokens that are known and have not run."""
        return self.prompt + self.generated - self.computed


@dataclass(frozen=True, slots=True)
class Work:
    """`length` tokens of a sequence, from `start`; `samples` if they are all that is known, so that one follows."""

    sequence: Sequence
    start: int
    length: int
    samples: bool


class Pace:
    """How long steps take, and so how much of a prompt may run in one without making running streams wait."""

    def __init__(self) -> None:
        self._plain: deque[float] = deque(maxlen=_SAMPLES)  # seconds of steps without a chunk
        self._token: deque[float] = deque(maxlen=_SAMPLES)  # seconds a prompt token adds to a step

    def took(self, prompt_tokens: int, running: int, seconds: float) -> None:
        """A step ran `running` streams and `prompt_tokens` of prompts."""
        if not prompt_tokens:
            self._plain.append(seconds)
        elif running and self._plain:
            self._token.append(max(0.0, seconds - median(self._plain)) / prompt_tokens)
        elif not running:
            self._token.append(seconds / prompt_tokens)

    def chunk(self, most: int, least: int = _GRAIN) -> int:
        """Prompt tokens to run beside streams: at most `most`, at least `least` (or `most`)."""
        if not self._plain or not self._token or (token := median(self._token)) <= 0:
            return min(most, max(least, _GRAIN * 2))
        fits = min(most, (_WAIT - 1) * median(self._plain) / token)
        return min(most, max(least, int(fits) // _GRAIN * _GRAIN))


class Scheduler:
    """Puts waiting sequences into free slots, first come first served, and plans each step.

    Every running stream gets one token a step. Prompts share `prefill_chunk` tokens, the oldest first; where streams
    run beside them, as many fewer as the measured pace asks for, but no fewer than `least`. `steady` cuts every prompt
    at multiples of `prefill_chunk` instead, whatever runs beside it.
    """

    def __init__(self, slots: int, prefill_chunk: int, *, steady: bool = False, least: int = _GRAIN) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # by slot
        self.pace = Pace()
        self._chunk, self._steady, self._least = prefill_chunk, steady, least
        self._free = list(range(slots))
        self._turns = 0

    def add(self, sequence: Sequence) -> None:
        self._turns += 1
        sequence.turn = self._turns
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """It has ended, or is not wanted any more. Its slot is free at once. Does nothing if it has gone already."""
        if sequence in self.running:
            self.running.remove(sequence)
            self._free.append(sequence.slot)
            self._free.sort()
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan(self, ready: Callable[[Sequence], bool]) -> tuple[Work, ...]:
        """What the next step runs: streams by slot, then prompts by age; nothing if there is nothing to do. A
        sequence that is not `ready` (its reader has fallen behind) keeps its slot and is passed over."""
        self._admit()
        able = [s for s in self.running if ready(s)]
        streams = [s for s in able if not s.prefilling]
        left = self._chunk if self._steady or not streams else self.pace.chunk(self._chunk, self._least)
        work = [Work(s, s.computed, 1, True) for s in streams]
        for sequence in sorted((s for s in able if s.prefilling), key=lambda s: s.turn):
            length = min(sequence.pending, self._chunk if self._steady else left)
            if not 0 < length <= left:
                break
            work.append(Work(sequence, sequence.computed, length, length == sequence.pending))
            left -= length
        return tuple(work)

    def launched(self, work: tuple[Work, ...]) -> None:
        """The planned step runs, or has run: what follows may be planned."""
        for item in work:
            item.sequence.computed += item.length
            item.sequence.generated += item.samples

    def took(self, work: tuple[Work, ...], seconds: float) -> None:
        """How long the step ran."""
        prompts = [w.length for w in work if w.start < w.sequence.prompt]
        self.pace.took(sum(prompts), len(work) - len(prompts), seconds)

    def _admit(self) -> None:
        while self.waiting and self._free:
            sequence = self.waiting.popleft()
            sequence.slot = self._free.pop(0)
            self.running.append(sequence)
            self.running.sort(key=lambda s: s.slot)
