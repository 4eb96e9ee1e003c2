"""A call taken apart, and put together of other tensors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from omnic.runtime.engines.calls import Call, Shapes, Unfit, put_together, ranges, recorded, taken_apart
from tests.runtime.engines.toys import Toy, call


def test_tensors_have_the_names_of_their_places() -> None:
    x, bias = torch.ones(2, 8), torch.ones(8)
    assert Call.of((x, [x, x]), {"scale": 2.0, "more": {"bias": bias}}).names == (
        "arg0", "arg1_0", "arg1_1", "more_bias",
    )  # fmt: skip


def test_calls_that_differ_in_tensors_alone_have_one_signature() -> None:
    assert call(2).signature == call(5).signature
    others = [call(2, scale=2.0), call(2, torch.bfloat16), call(2, more={"bias": torch.ones(8)}), call(2, more=None)]
    assert len({call(2).signature, *(other.signature for other in others)}) == 5


def test_arguments_around_other_tensors() -> None:
    args, kwargs = call(2, scale=2.0, more={"bias": torch.ones(8)}).around(["x", "b"])
    assert (args, kwargs) == (("x",), {"scale": 2.0, "more": {"bias": "b"}})


def test_a_result_comes_back_as_it_was() -> None:
    made = Toy()(torch.ones(2, 8))
    tensors, nesting = taken_apart(made)
    again = put_together([tensor + 1 for tensor in tensors], nesting)
    assert again.keys() == made.keys()
    assert again["word"] == "kept"
    torch.testing.assert_close(again["rows"], made["rows"] + 1)


def test_what_is_no_tensor_number_or_word_cannot_come_back() -> None:
    with pytest.raises(Unfit, match="gives a Toy, which is no tensor"):
        taken_apart([torch.ones(1), Toy()])


def test_ranges_span_the_calls() -> None:
    (shapes,) = ranges([call(4), call(2), call(9)])
    assert shapes == Shapes((2, 8), (4, 8), (9, 8))
    assert shapes.moving == (0,)
    assert str(shapes) == "[2..9, 8]"
    assert ((5, 8) in shapes, (10, 8) in shapes, (5, 7) in shapes, (5,) in shapes) == (True, False, False, False)


def test_recording_ends_before_anything_is_computed() -> None:
    ran = []

    class Costly(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            ran.append(x)
            return x

    module = Costly()
    with recorded({"it": module}, run=False) as calls:
        try:
            module(torch.ones(3))
        except Exception:  # what calls a module may catch what goes wrong in it
            ran.append(torch.zeros(1))
    assert ([c.shapes for c in calls["it"]], ran) == ([((3,),)], [])
    module(torch.ones(3))
    assert len(ran) == 1
