"""Shipped pipelines, built and loaded as `omnic run` does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from omnic.diagnostics import Sink
from omnic.driver import BuildResult, build
from omnic.runtime.pipeline import Pipeline, generated

PIPELINES = Path(__file__).parents[2] / "pipelines"
TRAIN = PIPELINES / "emoji/train"
T = TypeVar("T")


def built(name: str, out: Path) -> BuildResult:
    sink = Sink()
    made = build(PIPELINES / f"{name}.omni", out, sink)
    assert made is not None, list(sink)
    return made


@contextmanager
def training() -> Iterator[None]:
    """Within it, the modules of pipelines/emoji/train can be imported, as its scripts import each other."""
    before = set(sys.modules)
    sys.path.insert(0, str(TRAIN))
    try:
        yield
    finally:
        sys.path.remove(str(TRAIN))
        for name in sys.modules.keys() - before:
            if getattr(sys.modules[name], "__file__", None) and str(TRAIN) in str(sys.modules[name].__file__):
                del sys.modules[name]


Ask = Callable[[Callable[[Pipeline], Coroutine[Any, Any, T]]], T]


@contextmanager
def running(out: Path, class_name: str) -> Iterator[Ask[Any]]:
    """The pipeline of a build, loaded; calls what it is given with it, on one event loop."""
    with asyncio.Runner() as runner:
        loading = generated(out, class_name).load()
        pipeline = runner.run(loading.__aenter__())
        try:
            yield lambda work: runner.run(work(pipeline))
        finally:
            runner.run(loading.__aexit__(None, None, None))
