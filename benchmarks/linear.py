"""A matrix product with a packed weight (runtime/linear.py), against torch's own with the plain one, in bf16.

The shapes are those of the demo language model. One row of a table for each count of rows: the time of all layers and
the head, both sides taking turns; ratio is plain / packed, so above 1 packed is faster. Beyond 32 rows ours runs in
blocks of 32, so that a row does not depend on its neighbours; the last column is what the whole product would take.

    python -m benchmarks.linear [--pairs 9] [--threads 2] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import omnic.runtime  # noqa: F401 - before torch, so that its threads sleep while they wait

# isort: split
import torch
from torch import Tensor
from torch.nn import functional

from omnic.runtime.linear import Linear, packs

LAYER = ((960, 576), (576, 576), (3072, 576), (576, 1536))  # qkv, out, gate and up, down: [outputs, columns]
HEAD = (49152, 576)
ROWS = (1, 2, 4, 8, 16, 32, 64, 80, 512)


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    weights = [torch.randn(shape).bfloat16() for shape in (*LAYER * 30, HEAD)]
    if not all(packs(weight.shape, weight.dtype) for weight in weights):
        print("this CPU has no bf16 instructions: nothing is packed here")
    packed = [Linear(weight) for weight in weights]
    rows_of_table = []
    print(
        f"{'rows':>5} {'plain ms':>9} {'packed ms':>10} {'ratio':>6} {'lowest':>7} {'highest':>8} {'unblocked ms':>13}"
    )
    for rows in ROWS:
        inputs = {weight.shape[1]: torch.randn(rows, weight.shape[1]).bfloat16() for weight in weights}

        def each(product: Callable[[int, Tensor], Tensor], inputs: dict[int, Tensor] = inputs) -> Callable[[], object]:
            return lambda: [product(i, inputs[weight.shape[1]]) for i, weight in enumerate(weights)]

        plain = each(lambda i, x: functional.linear(x, weights[i]))
        ours = each(lambda i, x: packed[i](x))
        whole = each(lambda i, x: packed[i]._product(x))
        with torch.inference_mode():
            assert all(
                (packed[i](x := inputs[w.shape[1]]).float() - functional.linear(x, w).float()).norm()
                <= 1e-2 * functional.linear(x, w).float().norm()
                for i, w in enumerate(weights)
            )
            pairs = [(seconds(plain), seconds(ours), seconds(whole)) for _ in range(options.pairs)]
        ratios = sorted(p / o for p, o, _ in pairs)
        ms = [1e3 * statistics.median(side) for side in zip(*pairs, strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"{rows:5} {ms[0]:9.1f} {ms[1]:10.1f} {ratio:6.2f} {ratios[0]:7.2f} {ratios[-1]:8.2f} {ms[2]:13.1f}",
            flush=True,
        )
        rows_of_table.append(
            {"rows": rows, "plain_ms": ms[0], "packed_ms": ms[1], "unblocked_ms": ms[2], "ratio": ratio}
        )
    if options.json:
        record = {
            "device": f"{os.cpu_count()} x {platform.machine()}, {options.threads} threads",
            "versions": {"torch": metadata.version("torch"), "python": platform.python_version()},
            "rows": rows_of_table,
        }
        options.json.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
