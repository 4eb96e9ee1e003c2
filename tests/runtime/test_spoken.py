"""What is read aloud: markdown and HTML are taken out, whatever pieces the text came in."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnic.runtime.segment import Clauses, Sentences
from omnic.runtime.spoken import Phrases, Spoken


def said(text: str) -> list[str]:
    phrases = Phrases(Sentences())
    return phrases.push(text) + phrases.flush()


def test_plain_text_is_read_sentence_by_sentence() -> None:
    assert said("It rains. It pours!\nDoes it?") == ["It rains.", "It pours!", "Does it?"]


def test_fenced_code_is_not_read() -> None:
    text = "Try this:\n\n```python\nprint('no')  # Not this. Nor that.\n\n- nor this\n```\nIt works."
    assert said(text) == ["Try this:", "It works."]


@pytest.mark.parametrize(
    "code",
    [
        "~~~\nno\n~~~",
        "````\n```\nno\n```\n````",
        "> ```\n> no\n> ```",
        "- ```sh\n  no\n  ```",
        "   ```\nno\n   ```",
        "```\r\nno\r\n```",
        "```\n``\nno",  # never closed
        "```",
    ],
)
def test_fences_of_all_kinds(code: str) -> None:
    assert said(f"Before.\n{code}") == ["Before."]
    if not code.endswith(("no", "```")) or code.count("```") > 1:
        assert said(f"Before.\n{code}\nAfter.") == ["Before.", "After."]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A title", "A title"),
        ("### A title ###", "A title"),
        ("the #1 of C# and # alone", "the #1 of C# and # alone"),
        ("- an item", "an item"),
        ("* an item", "an item"),
        ("+ an item", "an item"),
        ("2. an item", "2. an item"),
        ("- [ ] to do", "to do"),
        ("- [x] done", "done"),
        ("> quoted", "quoted"),
        ("> > - # all of it", "all of it"),
        ("**bold** and __bold__", "bold and bold"),
        ("*slanted* and _slanted_", "slanted and slanted"),
        ("***both*** and **_both_**", "both and both"),
        ("~~struck~~ out, ~5 left", "struck out, ~5 left"),
        ("run `a_b(*c)` now", "run a_b(*c) now"),
        ("``a`b`` here", "a`b here"),
        ("```code``` on one line", "code on one line"),
        ("snake_case stays", "snake_case stays"),
        ("3 * 4 and 2*3", "3 * 4 and 2*3"),
        ("a [link](http://x.org/a_(b)) here", "a link here"),
        ('a [link](x.html "title") here', "a link here"),
        ("a [link][ref] here", "a link here"),
        ("an ![image](a.png) here", "an image here"),
        ("[![badge](a.svg)](http://x.org) here", "badge here"),
        ("a note[^1] here", "a note here"),
        ("an array[0] here", "an array[0] here"),
        ("[this](is not an address) here", "[this](is not an address) here"),
        ("[never closed", "[never closed"),
        ("some <b>bold</b> and <span class='a.b'>more</span>", "some bold and more"),
        ("one<br>two<br/>three", "one two three"),
        ("1 < 2 and x<y and y>z", "1 < 2 and x<y and y>z"),
        ("before <!-- not\nthis --> after", "before after"),
        ("fish &amp; chips &lt;3 &copy &nope;", "fish & chips <3 &copy &nope;"),
        ("see https://www.example.com/a/b?c=1#d.", "see example.com."),
        ("see <https://example.com/a> or <me@x.org>", "see example.com or me@x.org"),
        (r"\*not slanted\* and \# not a title", "*not slanted* and # not a title"),
        (r"C:\temp", r"C:\temp"),
        ("two   blanks\tand a tab", "two blanks and a tab"),
        ("Great!", "Great!"),
    ],
)
def test_marks_are_taken_out(text: str, expected: str) -> None:
    assert " ".join(said(text)) == expected


def test_a_table_is_read_row_by_row_with_a_comma_between_cells() -> None:
    table = "| Name | Age |\n|:-----|----:|\n| **Bob** | 42 |\n| Eve | |\n"
    assert said(table) == ["Name, Age", "Bob, 42", "Eve"]


@pytest.mark.parametrize("text", ["---", "***", "* * *", "=====", "\n\n", "", "...", "🙂", "- ", "?!", "| | |"])
def test_what_holds_no_word_is_not_read(text: str) -> None:
    assert said(text) == []
    assert said(f"Title\n{text}\nText") == ["Title", "Text"]


def test_a_sentence_does_not_wait_for_the_end_of_its_line() -> None:
    phrases = Phrases(Sentences())
    assert phrases.push("It **rains**. It ") == ["It rains."]


@pytest.mark.parametrize(
    "opening", ["An interval [0, 1) is half open. ", "A [link](that never ends. ", "If a <b then c. "]
)
def test_what_stays_open_does_not_hold_the_rest_of_the_text_back(opening: str) -> None:
    phrases = Phrases(Sentences())
    assert len(phrases.push(opening + "More of it. " * 60)) > 5


def test_what_reads_like_prose_is_no_tag() -> None:
    assert Phrases(Sentences()).push("If a <b then stop. Or so. Then") == ["If a <b then stop.", "Or so."]


def test_what_stays_open_ends_with_its_line() -> None:
    assert said("a `mark and a [bracket\n*more* of [it](x.org)") == ["a mark and a [bracket", "more of it"]


def test_units_that_an_edge_has_cut_are_read_as_they_were_cut() -> None:
    clauses, phrases = Clauses(), Phrases()
    cut = [*clauses.push("If it rains, **we stay** in. Good."), *clauses.flush()]
    assert [p for unit in cut for p in phrases.push(unit)] == ["If it rains,", "we stay in.", "Good."]


PARTS = st.sampled_from(
    ["```", "~~~", "``", "`", "**", "*", "_", "__", "~~", "~", "#", "## ", "- ", "> ", "1. ", "[", "]", "(", ")", "](",
     "!", "![", "<", ">", "</b>", "<br>", "<!--", "-->", "|", "|---|", "\\", "\n", "\n\n", "\r\n", " ", "word", "Word.",
     "a b", "https://x.org/y", "&amp;", "\"", "'", "=", ":", "[x]", "[^1]", "x" * 210]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PARTS, max_size=40).map("".join), st.text(max_size=60))


@given(text=TEXTS, cuts=st.lists(st.integers(0, 300)))
def test_what_is_said_depends_on_the_text_and_not_on_how_it_came(text: str, cuts: list[int]) -> None:
    at = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    spoken, phrases = Spoken(), Phrases(Sentences())
    pieces = [text[a:b] for a, b in pairwise(at)]
    streamed = "".join(map(spoken.push, pieces)) + spoken.flush()
    whole = Spoken()
    assert streamed == whole.push(text) + whole.flush()
    assert [p for piece in pieces for p in phrases.push(piece)] + phrases.flush() == said(text)


@given(words=st.lists(st.sampled_from(["alpha", "beta", "gamma"]), min_size=1, max_size=8), data=st.data())
def test_words_outside_code_and_tags_are_never_lost(words: list[str], data: st.DataObject) -> None:
    marks = st.sampled_from(["**", "*", "_", "`", "~~", "", "|", "[", "!", "\\", "(", "\n- ", "\n> "])
    text = "".join(f"{data.draw(marks)}{word}{data.draw(marks)} " for word in words)
    heard = " ".join(said(text))
    assert [word for word in ("alpha", "beta", "gamma") if heard.count(word) != text.count(word)] == []


MARKS = ("[](", "![](", "[a][", '[]("(', "<a ", '<a b="', "<a [](", "> - # ", "*[](*", "|[](")


@pytest.mark.parametrize("marks", MARKS)
def test_marks_without_end_are_read_about_as_fast_as_words(marks: str) -> None:
    text = (marks * 4096)[:4096]
    began = time.process_time()
    said(text)
    assert time.process_time() - began < 2  # a fraction of it, unless each character looks at all that is held
