"""How far a key goes, whatever sets it."""

from __future__ import annotations

import pytest

from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type
from omnic.expr import parse
from omnic.ir.pipeline import Open
from omnic.passes.reach import reach
from tests.passes.planning import ANSWER, plan

DOMAINS = {"n": Range(2, 10), "m": Choices((1, 4)), "free": None, "size": Choices(("a", "b"))}
KEY = Range(1, 99)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, (5, 5)),
        (None, None),
        (True, None),
        ("word", (1, 99)),
        (Open("f", Type("int"), 3, Range(1, 7)), (1, 7)),
        (Open("f", Type("int"), 3), (1, 99)),
        (parse("n"), (2, 10)),
        (parse("m"), (1, 4)),
        (parse("n * 2 - m"), (0, 19)),
        (parse("min(n, 5) / m"), (0.5, 5)),
        (parse("free + 1"), (1, 99)),
        (parse("size"), (1, 99)),
        (parse("10 / (n - 2)"), (1, 99)),  # cannot be evaluated at an end
    ],
)
def test_reach(value, expected):
    assert reach(value, KEY, DOMAINS) == expected


def test_an_answer_bounded_by_an_expression():
    text = ANSWER.replace("  stage", "  param turns: int = 4 in 1..8\n  stage").replace("= 128", "= turns * 16")
    assert dict(plan(text).pipeline.stage("think").how)["context"].value == 256 + 128
