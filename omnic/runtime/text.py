"""Between text and tokens: prompts by the checkpoint's chat template, and answers back, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from string import ascii_lowercase
from typing import Any

from omnic.runtime.errors import RequestError
from omnic.runtime.weights import Damaged

MAX_STOPS = 4
_SLICE = 1 << 14  # characters that are counted at a time
_AT_A_CUT = 32  # tokens that may be there for a cut alone
_UNFINISHED = "\ufffd"  # how a decoder shows bytes that are not (yet) a character
_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Codec:
    """A checkpoint's tokenizer and chat template. Safe to use from several threads."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int] = ()) -> None:
        """`tokenizer` is one of transformers', with a `tokenizers` backend."""
        self._tokenizer, self._backend = tokenizer, tokenizer.backend_tokenizer
        own = tokenizer.eos_token_id
        self.stop_ids = frozenset(stop_ids) | ({own} if own is not None else set())  # each ends an answer

    @classmethod
    def load(cls, directory: Path, stop_ids: Iterable[int] = ()) -> Codec:
        """Of a directory that transformers can read. Raises Damaged without a tokenizer or a chat template."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise Damaged(f"{directory} has no tokenizer that transformers can load: {error}") from None
        if not getattr(tokenizer, "is_fast", False):
            raise Damaged(f"{directory} has a tokenizer without a fast form (tokenizer.json)")
        if not tokenizer.chat_template:
            raise Damaged(f"{directory} has no chat template: it is no model to talk to")
        return cls(tokenizer, stop_ids)

    @classmethod
    def made_up(cls, vocabulary: int, stop_ids: Iterable[int] = ()) -> Codec:
        """For a model with random weights."""
        return cls(made_up(vocabulary), stop_ids)

    def prompt(self, messages: Sequence[Mapping[str, Any]], most: int | None = None) -> list[int]:
        """The tokens of a conversation, up to where the model answers. Raises RequestError, also where there are more
        than `most`: of a text far beyond that no more is read than it takes to tell."""
        if not messages:
            raise RequestError("`messages` is empty", "messages")
        for index, message in enumerate(messages):
            if not isinstance(message.get("content"), str):
                raise RequestError(f"`messages[{index}].content` must be text", "messages")
        if not messages[-1]["content"].strip():
            raise RequestError(f"`messages[{len(messages) - 1}].content` is blank: nothing to answer", "messages")
        turns = [{"role": message.get("role"), "content": message["content"]} for message in messages]
        from jinja2 import TemplateError

        try:
            text = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:  # templates refuse what they were not written for, such as two turns in a row
            raise RequestError(f"the model's chat template refuses these messages: {error}", "messages") from None
        if most is None:
            return self.encode(text)
        if (least := self._least(text, most)) > most:
            raise too_long(f"over {least}", most)
        tokens = self.encode(text)
        if len(tokens) > most:
            raise too_long(str(len(tokens)), most)
        return tokens

    def _least(self, text: str, most: int) -> int:
        """How many tokens a text has at least; 0 for one that is short enough to count. A cut changes few tokens."""
        count = 0
        for at in range(0, len(text) if len(text) > _SLICE else 0, _SLICE):
            count += max(0, len(self.encode(text[at : at + _SLICE])) - _AT_A_CUT)
            if count > most:
                break
        return count

    def encode(self, text: str) -> list[int]:
        """The tokens of text that has its special tokens written in it."""
        # of a batch, since for a single text tokenizers keeps all other threads of Python waiting
        ids: list[int] = self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        text: str = self._backend.decode(ids, skip_special_tokens=True)
        return text


def too_long(tokens: str, most: int) -> RequestError:
    """What a prompt of so many tokens gets."""
    what = f"the messages are {tokens} tokens long; this pipeline takes {most}"
    return RequestError(what, "messages", code="context_length_exceeded")


def made_up(vocabulary: int) -> Any:
    """A tokenizer of transformers for random weights, with a chat template: byte-level BPE whose tokens are three
    marks, the bytes, and made-up words of small letters, as many as `vocabulary` has room for. Raises Damaged below
    259, which marks and bytes need."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if vocabulary < len(_MARKS) + len(alphabet):
        raise Damaged(f"a random model needs vocab_size of {len(_MARKS) + len(alphabet)} or more, not {vocabulary}")
    words = list(islice(_words(), vocabulary - len(_MARKS) - len(alphabet)))
    tokens = [*_MARKS, *alphabet, *words]
    merges = [(word[:-1], word[-1]) for word in words]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, special=True) for mark in _MARKS])
    make: Any = PreTrainedTokenizerFast  # transformers leaves it untyped
    made = make(tokenizer_object=backend, eos_token=_MARKS[2], pad_token=_MARKS[0])
    made.chat_template = _TEMPLATE
    return made


def _words() -> Iterator[str]:
    """Every word of two small letters, then of three, and so on: each is an earlier one and a letter."""
    length = 2
    while True:
        yield from map("".join, product(ascii_lowercase, repeat=length))
        length += 1


class Detokeniser:
    """The text of an answer as its tokens come: what `push` and `flush` give, joined, is the decoded whole."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        # Decoders look at neighbours (a first word loses its space), so new tokens are decoded together with the
        # ones given last, and the text of those is cut off.
        self._given: list[int] = []
        self._new: list[int] = []

    def push(self, token: int) -> str:
        """The text that is certain now: empty while a character is still missing bytes."""
        self._new.append(token)
        text = self._delta()
        if not text or text.endswith(_UNFINISHED):
            return ""
        self._given, self._new = self._new, []
        return text

    def flush(self) -> str:
        """What was held back, as it is."""
        text = self._delta() if self._new else ""
        self._given, self._new = self._given + self._new, []
        return text

    def _delta(self) -> str:
        return self._decode(self._given + self._new)[len(self._decode(self._given)) :]


class Stops:
    """Cuts a text off before the first of some strings, wherever the borders between its pieces lie.

    Of several, the one that is complete first counts; of those complete at once, the longest. Text that could
    still turn out to begin one is held back.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(strings)
        self._longest = max(map(len, strings), default=0)
        self._held = ""
        self.found: str | None = None

    def push(self, text: str) -> str:
        """What of the text so far is certain to belong to the answer."""
        if not self._strings or not text:
            return text
        held = self._held + text
        ends = [(at + len(s), at, s) for s in self._strings if (at := held.find(s)) >= 0]
        if ends:
            _, at, self.found = min(ends)
            self._held = ""
            return held[:at]
        keep = next(n for n in range(min(self._longest - 1, len(held)), -1, -1) if self._begins(held[len(held) - n :]))
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        """What was held back: the answer ended without a stop string."""
        text, self._held = self._held, ""
        return text

    def _begins(self, tail: str) -> bool:
        return any(s.startswith(tail) for s in self._strings)


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop strings of a request. Raises RequestError for more than four or an empty one."""
    strings = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(strings) > MAX_STOPS:
        raise RequestError(f"`stop` may hold {MAX_STOPS} strings, not {len(strings)}", "stop")
    if not all(strings):
        raise RequestError("`stop` holds an empty string", "stop")
    return strings
