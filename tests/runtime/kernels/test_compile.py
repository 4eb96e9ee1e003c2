"""All kernels of a decoder compile for an H200, which need not be there: with real types, sizes and launch options."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COMPILE = """
import importlib
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

TYPES = {"bf16": "*bf16", "f32": "*fp32", "f64": "*fp64", "i32": "*i32", "i64": "*i64", "int": "i32"}


def built(module, name, warps, constants, **types):
    kernel = getattr(importlib.import_module(f"omnic.runtime.kernels.{module}"), name)
    names = kernel.arg_names
    signature = {n: "constexpr" if n in constants else TYPES.get(types[n], types[n]) for n in names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n].startswith("*")}
    source = ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "launch_pdl": True})
    assert ("griddepcontrol" in made.asm["ptx"]) == constants.get("DEPENDENT", False), name
    print(name, made.metadata.shared)


early = {"DEPENDENT": True}
product = {"x": "f32", "gain": "bf16", "weight": "bf16", "bias": "bf16", "out": "bf16", "outputs": "int",
           "epsilon": "fp32"}
built("gemv", "_gemv", 8,
      {"COLUMNS": 4096, "NORM": True, "BIAS": True, "ADD": False, "BLOCK": 4, "CHUNK": 2048} | early, **product)
built("gemv", "_gated_gemv", 4, {"COLUMNS": 1024, "BIAS": False, "BLOCK": 4, "CHUNK": 1024} | early, **product)
cache = {"qkv": "bf16", "norm": "bf16", "cosine": "f32", "sine": "f32", "keys": "bf16", "values": "bf16",
         "table": "i32", "slots": "i32", "positions": "i32", "epsilon": "fp32", "each_slot": "int"}
heads = {"HEADS": 16, "KV_HEADS": 8, "DIM": 128, "PAGE": 64, "NORM": True}
built("decode_attention", "_decode_attention", 4,
      {"SHARED": 2, "GROUP": 16, "SPLITS": 16, "LEAST": 1} | heads | early,
      **cache, out="bf16", sums="f32", tops="f32", weights="f32", arrived="i32", scale="fp32")
built("prefill_attention", "_prefill_attention", 4,
      {"HEADS": 16, "KV_HEADS": 8, "DIM": 128, "PAGE": 64, "BLOCK": 64},
      queries="bf16", keys="bf16", values="bf16", table="i32", slots="i32", positions="i32", out="bf16", rows="int",
      scale="fp32", each_slot="int")
built("rope", "_rope", 1, heads, **cache, queries="bf16")
built("residual_norm", "_residual_norm", 4, {"WIDTH": 1024, "DELTA": True, "BLOCK": 1024} | early,
      x="f32", delta="bf16", gain="bf16", out="bf16", epsilon="fp32")
built("residual_norm", "_embed", 2, {"WIDTH": 1024, "BLOCK": 1024} | {"DEPENDENT": False},
      embedding="bf16", tokens="i32", slots="i32", x="f32")
built("gated", "_gated", 4, {"WIDTH": 3072, "BLOCK": 1024} | early, both="bf16", out="bf16")
built("sample", "_likeliest", 4, {"SHARE": 3072, "PARTS": 64, "BLOCK": 1024} | early,
      logits="bf16", values="f32", indices="i32", vocabulary="int")
built("sample", "_finish", 1, {"PARTS": 64, "DRAWN": True} | early, values="f32", indices="i32", drawn_tokens="i64",
      slots="i32", tokens="i32", positions="i32", drawn="i64", out="i32", spare="int")
built("sample", "_uniform", 1, {}, seeds="i64", drawn="i64", slots="i32", out="f64")
"""


@pytest.mark.slow
def test_the_kernels_of_a_decoder_compile_for_an_h200() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 11
