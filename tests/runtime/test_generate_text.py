"""Text to tokens and back: prompts, deltas, stop strings."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from omnic.runtime.errors import RequestError
from omnic.runtime.text import Codec, Detokeniser, Stops
from omnic.runtime.weights import Damaged
from tests.runtime.talking import said

CODEC = Codec.made_up(3000)


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_written_by_the_chat_template() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *said("Hello")]
    assert CODEC.prompt(messages) == CODEC.encode(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_a_template_refuses_is_the_requests_fault() -> None:
    codec = Codec.made_up(300)
    codec._tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        codec.prompt(said("Hello"))
    assert caught.value.field == "messages"


def test_content_that_is_no_text_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"messages\[1\]\.content"):
        CODEC.prompt([*said("Hello"), {"role": "user", "content": [{"type": "image_url"}]}])


def test_of_a_text_far_too_long_no_more_is_read_than_it_takes_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    read, encode = [], CODEC.encode
    monkeypatch.setattr(CODEC, "encode", lambda text: read.append(len(text)) or encode(text))
    with pytest.raises(RequestError, match=r"are over \d+ tokens long; this pipeline takes 2000") as caught:
        CODEC.prompt(said("word " * 400_000), 2000)
    assert (caught.value.field, caught.value.code) == ("messages", "context_length_exceeded")
    assert sum(read) < 50_000


@pytest.mark.parametrize("text", ["word " * 9000, "a" * 60_000, "é" * 30_000, "\n" * 40_000])
def test_a_long_text_that_fits_is_taken_and_one_token_more_is_not(text: str) -> None:
    tokens = CODEC.prompt(said(f"say {text} now"))
    assert CODEC.prompt(said(f"say {text} now"), len(tokens)) == tokens
    with pytest.raises(RequestError, match=f"this pipeline takes {len(tokens) - 1}"):
        CODEC.prompt(said(f"say {text} now"), len(tokens) - 1)


def test_other_threads_go_on_while_a_long_text_is_read() -> None:
    reading, turns = threading.Thread(target=CODEC.encode, args=("word " * 200_000,)), 0
    reading.start()
    while reading.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 20


def test_a_directory_without_a_tokenizer_or_template_is_named(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match=str(tmp_path)):
        Codec.load(tmp_path)
    tokenizer = Codec.made_up(300)._tokenizer
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(Damaged, match="no chat template"):
        Codec.load(tmp_path)


# --- made-up tokens ---------------------------------------------------------------------------------------------------


@given(st.text())
def test_made_up_tokens_write_any_text(text: str) -> None:
    assert CODEC.decode(CODEC.encode(text)) == text


@pytest.mark.parametrize("vocabulary", [259, 260, 3000])
def test_a_made_up_vocabulary_is_as_large_as_asked(vocabulary: int) -> None:
    tokenizer = Codec.made_up(vocabulary)._tokenizer
    assert len(tokenizer) == vocabulary
    assert tokenizer.eos_token_id == 2


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(Damaged, match="259 or more, not 256"):
        Codec.made_up(256)


# --- deltas -----------------------------------------------------------------------------------------------------------


def deltas(codec: Codec, tokens: list[int]) -> list[str]:
    detokeniser = Detokeniser(codec.decode)
    return [*map(detokeniser.push, tokens), detokeniser.flush()]


@settings(max_examples=300)
@given(st.lists(st.one_of(st.integers(0, 2999), st.integers(3, 258)), max_size=40))
def test_deltas_join_to_the_whole_whatever_the_tokens(tokens: list[int]) -> None:
    assert "".join(deltas(CODEC, tokens)) == CODEC.decode(tokens)


@given(st.text(min_size=1))
def test_no_delta_shows_half_a_character(text: str) -> None:
    assert "\ufffd" not in "".join(deltas(CODEC, CODEC.encode(text.replace("\ufffd", "")))[:-1])


def test_a_character_comes_with_its_last_byte() -> None:
    assert deltas(CODEC, CODEC.encode("é🙂")) == ["", "é", "", "", "", "🙂", ""]


def test_bytes_that_are_no_character_are_shown_once_it_is_certain() -> None:
    tokens = [*CODEC.encode("🙂")[:2], *CODEC.encode("x")]
    assert deltas(CODEC, tokens) == ["", "", "\ufffdx", ""]


def sentencepiece_like() -> Codec:
    """Words with their space in front, as Llama 2 has them: a decoder that drops the space of the first."""
    words = {word: i for i, word in enumerate(["<unk>", "▁", "▁the", "▁sky", "s", "▁is", ".", "</s>"])}
    backend = Tokenizer(models.BPE(words, [], unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    from transformers import PreTrainedTokenizerFast

    return Codec(PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>"))


@given(st.lists(st.integers(0, 7), max_size=20))
def test_deltas_keep_the_spaces_that_a_decoder_drops_at_the_start(tokens: list[int]) -> None:
    codec = sentencepiece_like()
    assert "".join(deltas(codec, tokens)) == codec.decode(tokens)


# --- stop strings -----------------------------------------------------------------------------------------------------


def cut(pieces: list[str], strings: tuple[str, ...]) -> tuple[str, str | None]:
    stops, given_ = Stops(strings), ""
    for piece in pieces:
        given_ += stops.push(piece)
        if stops.found is not None:
            return given_, stops.found
    return given_ + stops.flush(), None


def letter_by_letter(text: str, strings: tuple[str, ...]) -> tuple[str, str | None]:
    """What the rule says: the first to be complete, and of those complete at once the longest."""
    for end in range(1, len(text) + 1):
        whole = [s for s in strings if text[:end].endswith(s)]
        if whole:
            longest = max(whole, key=len)
            return text[: end - len(longest)], longest
    return text, None


LETTERS = st.text("ab🙂", max_size=12)


@settings(max_examples=300)
@given(LETTERS, st.lists(st.text("ab🙂", min_size=1, max_size=4), max_size=4), st.data())
def test_a_stop_string_is_found_wherever_the_pieces_end(text: str, strings: list[str], data: st.DataObject) -> None:
    borders = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *borders], [*borders, len(text)], strict=True)]
    assert cut(pieces, tuple(strings)) == letter_by_letter(text, tuple(strings))


def test_what_may_begin_a_stop_string_is_held_back_and_no_more() -> None:
    stops = Stops(("END",))
    assert [stops.push(piece) for piece in ("the E", "N", "x", " EN")] == ["the ", "", "ENx", " "]
    assert stops.flush() == "EN"
