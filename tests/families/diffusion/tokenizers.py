"""Small tokenizers of the kinds that text encoders come with, trained on a few sentences."""

from __future__ import annotations

import json
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from omnic.runtime.text import made_up

WORDS = 400  # of those that are made up
CLIP_WORDS = 520  # room for every byte, within a word and at its end, and two marks
T5_WORDS = 150
_SENTENCES = [
    "the quick brown fox jumps over the lazy dog", "a photo of a cat sitting on a red mat",
    "two red cats on a mat, at noon", "one two three four five six seven eight nine ten",
] * 20  # fmt: skip


def tokenizer(kind: str) -> Any:
    """A tokenizer of the class named `kind`, or, for those without peculiarities, a made-up one."""
    if kind.startswith("CLIP"):
        return clip()
    if kind.startswith("T5"):
        return t5()
    made = made_up(WORDS)
    if kind.startswith("Gemma"):  # a mark at the start of every text
        mark = made.convert_ids_to_tokens(1)
        made.backend_tokenizer.post_processor = processors.TemplateProcessing(f"{mark} $A", None, [(mark, 1)])
    return made


def clip() -> Any:
    """Pieces marked at the end of a word, two marks around a text, 77 tokens at most."""
    from transformers import CLIPTokenizer

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [*alphabet, *(f"{byte}</w>" for byte in alphabet), "<|startoftext|>", "<|endoftext|>"]
    make: Any = CLIPTokenizer
    return make(vocab={piece: i for i, piece in enumerate(pieces)}, merges=[], model_max_length=77)


def t5() -> Any:
    """Pieces of a unigram model, and a mark at the end of a text."""
    from transformers import T5Tokenizer

    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=T5_WORDS, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    backend.train_from_iterator(_SENTENCES, trainer)
    pieces = [tuple(piece) for piece in json.loads(backend.to_str())["model"]["vocab"]]
    make: Any = T5Tokenizer
    return make(vocab=pieces, extra_ids=0, model_max_length=77)
