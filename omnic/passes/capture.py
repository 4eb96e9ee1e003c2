"""`capture`: which engine runs each stage, and for which shapes it holds graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from omnic.catalog.part import Capture
from omnic.contract.domains import Choices
from omnic.expr import Name, Size
from omnic.ir.pipeline import Open, Pipeline, Setting, Stage, get, put
from omnic.passes.ahead import TENSORRT, ahead
from omnic.passes.base import Context, Pass, decide, span_of, without, word
from omnic.passes.quantize import precision_of

_GRAPH, _COMPILED = "cuda_graph", "inductor"
_AS = {_GRAPH: "as captured graphs", _COMPILED: "compiled"}


@dataclass(frozen=True, slots=True)
class CapturePass(Pass):
    """Decides the engine of every stage whose part can be captured: graphs where it is on a GPU, held in what its
    graphs are made for, and nothing else changes its steps. For graphs it decides the sizes that have one (those that
    requests may choose from, at most `sizes`) and the lengths to which texts are padded. Other sizes run without.
    Where a graph is of a call of the model rather than of a whole step, it is for stages that ask for it, by `engine`
    or `buckets`; so are compiled blocks (`inductor`), which run in graphs of the same sizes.

    Engines of TensorRT are for stages that ask for them. After it no stage has `buckets`, and an engine is
    one that the part has where it runs.
    """

    name: ClassVar[str] = "capture"
    sizes: int = 8  # most that a stage holds graphs for, where the source lists none

    def run(self, pipeline: Pipeline, context: Context) -> Pipeline:
        defaults = {param.name: param.default for param in pipeline.params}
        for stage in pipeline.stages:
            pipeline = pipeline.with_stage(self._decided(stage, context, defaults))
        return pipeline

    def _decided(self, stage: Stage, context: Context, defaults: Mapping[str, Any]) -> Stage:
        asked, listed = get(stage.how, "engine"), get(stage.how, "buckets")
        capture = context.part(stage).capture
        wanted = "auto" if asked is None else word(asked.value)
        if asked is not None and wanted == TENSORRT:
            return ahead(stage, asked, context)
        obstacle = _obstacle(stage, capture, context, wanted)
        bare = replace(stage, how=without(stage.how, "engine", "buckets"))
        narrow = get(stage.how, "dtype") if precision_of(stage) == "fp8" else None
        if narrow is not None and (obstacle is not None or wanted == "eager"):
            context.sink.error(
                "illegal-precision", f"`{stage.name}` runs in fp8 as captured graphs alone:"
                f" {obstacle or '`engine = eager`'}", span_of(narrow, stage), help=["precision = bf16"],
            )  # fmt: skip
            return bare
        if wanted in _AS and obstacle is not None:
            context.sink.error(
                "illegal-engine", f"`{stage.name}` cannot run {_AS[wanted]}: {obstacle}", span_of(asked, stage),
                help=["engine = eager", *(["or offload = none"] if get(stage.how, "resident") is not None else [])],
            )  # fmt: skip
            return bare
        whole = capture is not None and bool(capture.texts)
        graphs = obstacle is None and (wanted in _AS or (wanted == "auto" and (whole or listed is not None)))
        if listed is not None and not graphs:
            why = obstacle or f"`engine = {wanted}`"
            context.sink.error(
                "misplaced-key", f"`buckets` of `{stage.name}` are shapes of captured graphs, and it has none: {why}",
                span_of(listed, stage), "remove this",
            )  # fmt: skip
            return bare
        if not graphs:
            if wanted == "auto" and obstacle is not None and get(stage.how, "resident") is not None:
                return replace(bare, how=put(bare.how, "engine", Setting("eager", reason=obstacle)))
            if asked is None or wanted != "eager" or capture is None:
                return bare  # of what cannot be captured, `eager` says what holds anyway
            return replace(bare, how=put(bare.how, "engine", replace(asked, value="eager")))
        assert capture is not None
        if (sizes := self._shapes(stage, listed, context, defaults)) is None:
            return bare
        measured = capture.errors.get(precision_of(stage) or "")
        why = "a whole step is one launch" if whole else "a call of its model is one launch"
        why += (" of compiled blocks" if wanted == _COMPILED else "") + (f"; {measured}" if measured else "")
        pinned = asked if asked is not None and wanted in _AS else Setting(_GRAPH)
        how = put(bare.how, "engine", replace(pinned, value=word(pinned.value), reason=why))
        how = put(how, "sizes", sizes)
        if not whole:
            return replace(stage, how=how)
        return replace(stage, how=decide(how, "texts", capture.texts, _padding(capture.texts)))

    def _shapes(
        self, stage: Stage, listed: Setting | None, context: Context, defaults: Mapping[str, Any]
    ) -> Setting | None:
        """Sizes with graphs, of a video with how many frames; `any` where all results are of one shape. None with an
        error in the sink."""
        if context.part(stage).key("size") is None and get(stage.keys, "size") is None:
            if listed is not None:
                context.sink.error(
                    "misplaced-key", f"`buckets` lists sizes, and all that `{stage.name}` makes has one shape",
                    span_of(listed, stage), "remove this",
                )  # fmt: skip
                return None
            return Setting(("any",), reason="all have one shape")
        sizes, frames = self._sizes(stage, listed, context, defaults), _default(stage, "frames", context, defaults)
        if sizes is None or not isinstance(frames, int):
            return sizes
        return replace(sizes, value=tuple(f"{size}x{frames}" for size in sizes.value))

    def _sizes(
        self, stage: Stage, listed: Setting | None, context: Context, defaults: Mapping[str, Any]
    ) -> Setting | None:
        """The sizes with graphs, the largest first; None with an error in the sink."""
        if listed is not None:
            return _listed(stage, listed, context)
        found = get(stage.keys, "size")
        value: Any = found.value if found is not None else None
        domain = context.domains.get(value.path[0]) if isinstance(value, Name) else None
        if isinstance(value, Size):
            sizes: tuple[Size, ...] = (value,)
            why = "the size that every picture has"
        elif isinstance(domain, Choices):
            sizes, why = tuple(s for s in domain.values if isinstance(s, Size)), "those that a request can ask for"
        else:
            default = _default(stage, "size", context, defaults)
            sizes = (default,) if isinstance(default, Size) else ()
            why = "the default; other sizes run the same kernels without a graph"
        if len(sizes) > self.sizes:
            sizes, why = sizes[: self.sizes], f"the first {self.sizes}; other sizes run without a graph"
        return Setting(tuple(map(str, sorted(sizes, key=lambda s: (-s.area, str(s))))), reason=why)

    def broken(self, pipeline: Pipeline, context: Context) -> Iterator[str]:
        for stage in pipeline.stages:
            engine = get(stage.how, "engine")
            if get(stage.how, "buckets") is not None:
                yield f"stage `{stage.name}` still has `buckets`"
            if engine is None or engine.value not in _AS:
                continue
            if _obstacle(stage, context.part(stage).capture, context, engine.value):
                yield f"stage `{stage.name}` cannot run {_AS[engine.value]}"


def _obstacle(stage: Stage, capture: Capture | None, context: Context, wanted: str) -> str | None:
    """Why a stage cannot run as graphs, or compiled where that is `wanted`; None where it can."""
    on, precision = get(stage.how, "on"), precision_of(stage)
    if on is not None and context.target.device(on.value[0]).kind != "gpu":
        return "they are for GPUs" if wanted != _COMPILED else "that is for GPUs"
    if capture is None:
        return f"`{stage.part}` has no graphs yet"
    if wanted == _COMPILED and not capture.compiles:
        return "its steps are fused kernels already" if capture.texts else "it has no repeated blocks"
    if precision not in capture.precisions:
        return f"its graphs are made for {' and '.join(capture.precisions)}"
    for key, what in (("step_cache", "a step cache"), ("loras", "adapters beside the weights")):
        if get(stage.how, key) is not None:
            return f"{what} would have to be part of them"
    if get(stage.how, "resident") is not None:
        return "graphs do not fetch blocks from the host yet"
    return None


def _default(stage: Stage, name: str, context: Context, defaults: Mapping[str, Any]) -> Any:
    """What a key of the stage is where a request does not say; None where it has no such key."""
    key, found = context.part(stage).key(name), get(stage.keys, name)
    if found is None or isinstance(found.value, Open):
        return key.default if key is not None else None
    return defaults.get(found.value.path[0]) if isinstance(found.value, Name) else found.value


def _listed(stage: Stage, listed: Setting, context: Context) -> Setting | None:
    values = listed.value if isinstance(listed.value, tuple | list) else (listed.value,)
    key = context.part(stage).key("size")
    wrong = [v for v in values if not isinstance(v, Size) or (key and key.domain is not None and v not in key.domain)]
    if wrong or not values:
        context.sink.error(
            "bad-bucket", f"`buckets` of `{stage.name}` lists sizes such as 1024x1024", span_of(listed, stage),
            notes=[f"{wrong[0]} is none that `{stage.part}` can make"] if wrong else [],
        )  # fmt: skip
        return None
    ordered = sorted(set(values), key=lambda s: (-s.area, str(s)))
    return replace(listed, value=tuple(map(str, ordered)), reason="listed in the source")


def _padding(texts: tuple[int, ...]) -> str:
    """What padding costs at most: the tokens of a text that is one longer than a bucket."""
    worst = max(b - a - 1 for a, b in zip((0, *texts), texts, strict=False))
    return f"texts are padded to the next of these, and the padding is masked: {worst} tokens at most"
