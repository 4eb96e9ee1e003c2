"""Tiny families through the exporter, onnxruntime and TensorRT for RTX.

`python -m tests.runtime.engines.families [FAMILY…]` prints the table of docs/tensorrt.md, a line for each body.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from omnic.runtime.engines import gate
from omnic.runtime.engines.bodies import Body
from omnic.runtime.engines.builder import NoBuilder, Settings, builder_for
from omnic.runtime.engines.calls import Call, Unfit, ranges, taken_apart
from omnic.runtime.engines.export import export
from omnic.runtime.engines.fake import Reference
from omnic.runtime.engines.make import by_signature, observed
from tests.runtime.engines.tiny import DRAW, ENCODE, PAINT, tiny

FAMILIES = (
    "flux", "flux2", "sd3", "sdxl", "qwen_image", "z_image", "lumina2", "wan", "hunyuan_video15", "cogvideox", "ltx2",
    "stable_audio", "emoji",
)  # fmt: skip
ARCHITECTURE = "sm_89"


@dataclass(frozen=True)
class Row:
    """A body for calls of one signature: how far onnxruntime is from the module over all calls, relative to the
    largest value; bytes of the engine, and seconds to export and to build it."""

    body: str
    error: float
    bytes: int
    export_seconds: float
    build_seconds: float


def rows(family: str, stage: str) -> Iterator[Row]:
    """Raises Unfit for a body that cannot be exported or built, NoBuilder without TensorRT for RTX."""
    made = tiny(family)
    asks = made.asks(stage)
    with torch.inference_mode():
        seen = observed(made.part(stage), asks, 1)
    for body, calls in seen:
        for alike in by_signature(calls):
            yield _row(body, alike)


def _row(body: Body, calls: list[Call]) -> Row:
    shapes, began = ranges(calls), time.perf_counter()
    with TemporaryDirectory() as folder:
        made = export(body.inner, calls[0], shapes, Path(folder))
        exported = time.perf_counter()
        session = Reference().session(Reference().build(made.file, {}, Settings()))
        error = 0.0
        for call in calls:
            args, kwargs = call.around(call.tensors)
            with torch.inference_mode():
                expected, _ = taken_apart(body.inner(*args, **kwargs))
            found = session.run(dict(zip(call.names, call.tensors, strict=True)))
            error = max(error, gate.distance([found[name] for name in made.outputs], expected))
        ran = time.perf_counter()
        named = dict(zip(calls[0].names, shapes, strict=True))
        engine = builder_for(ARCHITECTURE).build(made.file, named, Settings())
        return Row(body.name, error, len(engine), exported - began, time.perf_counter() - ran)


def main() -> None:
    print("| family | stage | body | error | engine | export | build |\n|---|---|---|---|---|---|---|")
    for family in sys.argv[1:] or FAMILIES:
        for stage in (ENCODE, DRAW, PAINT):
            if stage not in tiny(family).stages:
                continue
            try:
                for row in rows(family, stage):
                    size = f"{row.bytes / 1e6:.1f} MB"
                    times = f"{row.export_seconds:.1f} s | {row.build_seconds:.1f} s"
                    print(f"| {family} | {stage} | `{row.body}` | {row.error:.0e} | {size} | {times} |", flush=True)
            except (Unfit, NoBuilder, RuntimeError) as error:
                print(f"| {family} | {stage} | no: {str(error)[:300]} | | | | |", flush=True)


if __name__ == "__main__":
    main()
