"""Transformers whose rotary tables are handed to them as real numbers give what they give by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from omnic.runtime.diffusion import predict
from omnic.runtime.engines.bodies import bodies
from tests.runtime.engines.tiny import DRAW, tiny


def predicted(family: str, *, turned: bool) -> list[Any]:
    """The first predictions of two requests: of one size, with texts of two lengths, in one forward."""
    made = tiny(family)
    part = made.part(DRAW)
    (body,) = bodies(part)
    assert body.inner is not body.module
    with torch.inference_mode():
        jobs = [part.prepare(ask) for ask in made.asks(DRAW)[:2]]
        if turned:
            body.put(body.inner)
        try:
            return predict(part.forward, jobs)
        finally:
            body.restore()


@pytest.mark.parametrize("family", ["qwen_image", "z_image"])
def test_real_tables_give_the_same(family: str) -> None:
    torch.testing.assert_close(predicted(family, turned=True), predicted(family, turned=False), atol=1e-5, rtol=1e-5)
