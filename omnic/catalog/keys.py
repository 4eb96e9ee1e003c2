"""The keys that every stage has, whatever its part: `COMMON_KEYS`."""

from __future__ import annotations

from dataclasses import replace

from omnic.catalog.part import Key
from omnic.contract.domains import Choices, Range
from omnic.contract.types import Type
from omnic.expr import Quantity

_ENGINES = ("auto", "eager", "inductor", "cuda_graph", "tensorrt", "vllm")
_PRECISIONS = ("bf16", "fp32", "fp16", "fp8", "int8", "int4")
_SPREAD = "omnic cannot spread a stage over several devices yet"
_NO_SPLIT = "omnic cannot run prefill and decode apart yet"

COMMON_KEYS: tuple[Key, ...] = (
    Key(
        "precision", Type("enum", _PRECISIONS), None, doc="what the weights are held in",
        kinds=("generate", "denoise", "transform", "decode"),
        now=Choices(("bf16", "fp32", "fp8")),
        later="omnic holds weights in bf16, fp32 or fp8; other precisions come later",
    ),
    Key(
        "engine", Type("enum", _ENGINES), "auto", doc="what runs the stage",
        now=Choices(("auto", "eager", "inductor", "cuda_graph", "tensorrt")),
        later="omnic runs stages eagerly, compiled, as captured graphs or by TensorRT; this engine comes later",
    ),
    Key("place", Type("json"), None, doc="devices of the target, counted from 0: `[0, 1]`"),
    Key(
        "replicas", Type("int"), 1, Range(1, 64), doc="copies of the stage that share its requests",
        now=Choices((1,)), later="omnic runs one copy of a stage; replicas come later",
    ),
    Key(
        "isolate", Type("bool"), False, doc="a process of its own for the stage",
        now=Choices((False,)), later="omnic hosts all stages in one worker; isolation comes later",
    ),
    Key(
        "tensor_parallel", Type("int"), 1, Range(1, 64), doc="devices that share each weight",
        kinds=("generate", "denoise", "transform"), now=Choices((1,)), later=_SPREAD,
    ),
    Key(
        "sequence_parallel", Type("json"), None, doc="`ulysses(n)`, `ring(n)` or `usp(u, r)`",
        kinds=("denoise", "transform"), unsupported=_SPREAD,
    ),
    Key(
        "cfg_parallel", Type("int"), 1, Range(1, 2), doc="guidance branches on devices of their own",
        kinds=("denoise",), now=Choices((1,)), later=_SPREAD,
    ),
    Key(
        "vae_parallel", Type("int"), 1, Range(1, 64), doc="devices that share the tiles of a decode",
        kinds=("decode", "transform"), now=Choices((1,)), later=_SPREAD,
    ),
    Key(
        "split", Type("enum", ("prefill_decode",)), None, doc="phases on devices of their own",
        kinds=("generate",), unsupported=_NO_SPLIT,
    ),
    Key(
        "offload", Type("json"), None,
        doc="blocks that lie on the host between their uses: `layers`, or all but some, `layers(resident = 20)`",
    ),
    Key(
        "kv_cache", Type("int"), None, Range(Quantity(1, "KiB"), Quantity(1024, "TiB")),
        doc="memory for keys and values; sets `slots`", kinds=("generate",),
    ),
    Key(
        "slots", Type("int"), None, Range(1, 4096), doc="sequences that run at once",
        kinds=("generate", "denoise"),
    ),
    Key(
        "batch", Type("int"), None, Range(1, 4096), doc="requests in one forward",
        kinds=("denoise",),
    ),
    Key(
        "mode", Type("enum", ("step", "request")), None, doc="whether requests join a batch at any step, or run whole",
        kinds=("denoise",),
    ),
    Key(
        "cache", Type("json"), None,
        doc="what lets a step leave most blocks out: `first_block`, `tea`, or one with its threshold, `tea(0.2)`",
        kinds=("denoise",),
    ),
    Key(
        "loras", Type("json"), (), doc="adapters that lie beside the weights; requests choose one by its name",
        kinds=("denoise",),
    ),
    Key("fuse", Type("json"), (), doc="adapters that are added to the weights when they load", kinds=("denoise",)),
    Key(
        "fuse_scale", Type("float"), 1.0, Range(-8.0, 8.0), doc="what the adapters in `fuse` are multiplied by",
        kinds=("denoise",),
    ),
    Key(
        "buckets", Type("json"), None, doc="sizes that get a captured graph: `[1024x1024, 512x512]`",
        kinds=("denoise",),
    ),
    Key(
        "deterministic", Type("bool"), False, doc="bit-equal results whatever the neighbours",
        now=Choices((False,)), later="omnic has no batch-invariant kernels yet",
    ),
)  # fmt: skip

_PHASES = {"generate": ("prefill", "decode")}


def common_key(name: str, kind: str) -> Key | None:
    """The key `name` that every stage of `kind` has, or that one of its phases has (`prefill.tensor_parallel`)."""
    phase, _, rest = name.rpartition(".")
    key = next((k for k in COMMON_KEYS if k.name == rest and k.fits(kind)), None)
    if not phase or key is None:
        return key
    return replace(key, name=name, unsupported=_NO_SPLIT) if phase in _PHASES.get(kind, ()) else None
