"""Segmenters: what ends a unit, and that arrival has no say in it."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnic.runtime.edges import Segmenter
from omnic.runtime.segment import LONGEST, LONGEST_WORD, Clauses, Sentences, Whole, Words

SEGMENTERS = [Sentences, Clauses, Words, Whole]


def units(text: str, segmenter: Segmenter | None = None) -> list[str]:
    segmenter = segmenter or Sentences()
    return [*segmenter.push(text), *segmenter.flush()]


def test_a_sentence_ends_at_its_stop() -> None:
    assert units("It rains. Does it? It does! So… Yes") == ["It rains. ", "Does it? ", "It does! ", "So… ", "Yes"]


def test_a_sentence_is_given_as_soon_as_the_next_one_begins() -> None:
    sentences = Sentences()
    assert sentences.push("It rains. ") == []
    assert sentences.push("D") == ["It rains. "]


def test_a_newline_ends_a_unit_at_once() -> None:
    sentences = Sentences()
    assert sentences.push("A title\n") == ["A title\n"]
    assert sentences.push("\n\nmore\n") == ["\n\nmore\n"]


@pytest.mark.parametrize(
    "sentence",
    [
        "Dr. Smith and Mrs. Jones met Prof. Lee.",
        "J. K. Rowling lives in the U.S. Army base.",
        "Pi is 3.14 and e is 2.718.",
        "Use fruit, e.g. apples, i.e. Red ones.",
        "See Fig. 3 and No. 5 of vol. 2.",
        "It was approx. 5 m, cf. Table 1, by Hill et al. 1999.",
        "Wait... what is that?",
        "He said “no!” and left.",
        "Version 1.2.3 of foo.bar.baz runs.",
        "On Jan. 5 we met.",
        "1. A step of a list.",
        "- 12. Another, in a nested list.",
        "Yahoo! is a company.",
    ],
)
def test_stops_that_end_no_sentence(sentence: str) -> None:
    assert units(sentence + " Next") == [sentence + " ", "Next"]


@pytest.mark.parametrize(
    "text",
    [
        "No. | That is wrong.",
        "We met at 5 p.m. | Then we left.",
        "It was in 1999. | Then it ended.",
        'She said "Stop." | He did.',
        "(It was cold.) | They left.",
        "**It is bold.** | This is not.",
        "`It is code.` | This is not.",
        "Wait... | What is that?",
        "What?! | Yes.",
        "它很好。| 你呢？| 「是。」| 好",
    ],
)
def test_stops_that_end_a_sentence(text: str) -> None:
    expected = [unit if i == 0 else unit.lstrip() for i, unit in enumerate(text.split("|"))]
    assert units(text.replace("| ", "").replace("|", "")) == expected


def test_text_without_a_stop_is_cut_after_forty_words() -> None:
    text = " ".join(f"w{n}" for n in range(100))
    assert [len(unit.split()) for unit in units(text)] == [LONGEST, LONGEST, 20]


def test_a_long_sentence_is_cut_at_a_clause_mark_if_that_leaves_more_than_half() -> None:
    words = [f"w{n}" for n in range(90)]
    late, early = words.copy(), words.copy()
    late[29] += ","
    early[9] += ","
    assert [len(unit.split()) for unit in units(" ".join(late))] == [30, 40, 20]
    assert [len(unit.split()) for unit in units(" ".join(early))] == [40, 40, 10]


def test_a_word_without_an_end_is_cut_too() -> None:
    assert [len(unit) for unit in units("x" * 1000)] == [LONGEST_WORD, LONGEST_WORD, 200]


def test_clauses_end_at_clause_marks_but_not_after_a_word_or_two() -> None:
    text = "Well, yes, of course we can; if he comes, we go. Good: then: we do."
    expected = ["Well, yes, of course we can; ", "if he comes, ", "we go. ", "Good: then: we do."]
    assert units(text, Clauses()) == expected


def test_words() -> None:
    assert units("One  two\nthree ", Words()) == ["One ", " two\n", "three "]


def test_whole_is_one_unit_even_of_nothing() -> None:
    assert units("One. Two.\n", Whole()) == ["One. Two.\n"]
    assert units("", Whole()) == [""]


@pytest.mark.parametrize("segmenter", [Sentences, Clauses, Words])
def test_blanks_alone_are_no_unit(segmenter: type[Segmenter]) -> None:
    assert units(" \n\t ", segmenter()) == []
    assert units("Hi. \n \n", segmenter())[-1].strip() == "Hi."


PARTS = st.sampled_from(
    ["Dr.", "e.g.", "3.14", "J.", "U.S.", "No.", "5", "1.", "-", "...", "…", "?", "!", ".", ",", ";", "“Yes.”", ")",
     "**", "`", "\n", "\n\n", " ", "  ", "\t", "word", "Word", "。", "，", "```", "x" * 150, "🙂", "é", "‘", "#", "|"]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PARTS, max_size=60).map(" ".join), st.lists(PARTS, max_size=60).map("".join), st.text(max_size=80)
)


@given(text=TEXTS, cuts=st.lists(st.integers(0, 400)), kind=st.sampled_from(SEGMENTERS))
def test_units_depend_on_the_text_and_not_on_how_it_came(text: str, cuts: list[int], kind: type[Segmenter]) -> None:
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(at)]
    segmenter = kind()
    streamed = [unit for piece in pieces for unit in segmenter.push(piece)] + segmenter.flush()
    assert streamed == units(text, kind())
    letters = kind()
    assert [unit for letter in text for unit in letters.push(letter)] + letters.flush() == streamed


@given(text=TEXTS, kind=st.sampled_from([Sentences, Clauses, Words]))
def test_units_are_the_text_again_and_none_is_blank_or_too_long(text: str, kind: type[Segmenter]) -> None:
    found = units(text, kind())
    joined = "".join(found)
    assert text.startswith(joined)
    assert not text[len(joined) :].strip()
    assert all(unit.strip() for unit in found)
    assert all(len(unit.split()) <= LONGEST for unit in found)
