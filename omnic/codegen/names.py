"""The Python names of a generated module: distinct, whatever the source calls its things."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable
from pathlib import PurePosixPath

from omnic.ir.pipeline import Endpoint, Open, Pipeline, Slice

MODULES: dict[str, tuple[str, ...]] = {
    # what generated code may import, in the order isort leaves it
    "omnic.contract.domains": ("Choices", "Range", "Rule"),
    "omnic.expr": ("Size",),
    "omnic.runtime.chunks": ("Chunks",),
    "omnic.runtime.decode": ("Decode",),
    "omnic.runtime.denoise": ("Denoise",),
    "omnic.runtime.flow": ("Flow",),
    "omnic.runtime.forward": ("Forward",),
    "omnic.runtime.generate": ("Generate", "Rows"),
    "omnic.runtime.pipeline": ("Build", "Pipeline"),
    "omnic.runtime.sampling": ("draw", "keep_top_k", "keep_top_p", "penalise", "scale"),
    "omnic.runtime.segment": ("Clauses", "Sentences", "Whole", "Words"),
    "omnic.runtime.transform": ("Python", "Resample"),
    "torch": ("Tensor",),
}
_OWN = ("Any", "math", "self", "flow", "seed", "logits", "rows", "add", "build", "load", "stages")


def identifier(name: str) -> str:
    """A name of the language as a Python name: dots become underscores, a keyword gets one at its end."""
    name = name.replace(".", "_")
    return f"{name}_" if keyword.iskeyword(name) else name


class Names:
    """One pool of names for a module: no argument, stage, channel, constant or method hides another."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._taken = {*dir(builtins), *_OWN, *(name for names in MODULES.values() for name in names)}
        self.class_name = self._new("".join(word.capitalize() for word in pipeline.name.split("_")) or "Pipeline")
        self._methods = {
            (endpoint.name, slice_.outputs): self._new("_".join((endpoint.name, *slice_.outputs)))
            for endpoint in pipeline.endpoints
            for slice_ in endpoint.slices
        }
        fields = [i.name for i in pipeline.inputs] + [p.name for p in pipeline.params] + [*_knobs(pipeline)]
        self.arguments = {"seed": "seed"} | {f: self._new(f) for f in dict.fromkeys(fields) if f != "seed"}
        self.entries = {  # a port and a field of one name are two things
            e.name: self._new(e.entry.rpartition(".")[2], e.entry) for e in pipeline.endpoints if e.entry
        }
        self.stages = {stage.name: self._new(stage.name) for stage in pipeline.stages}
        self.channels = {channel.name: self._new(channel.name) for channel in pipeline.channels}
        self.samplers = {s.name: self._new(f"sample_{s.name}") for s in pipeline.stages if s.kind == "generate"}
        self.constants = {field: self._new(field.rpartition(".")[2].upper(), field.upper()) for field in self.arguments}
        self.files = python_files(pipeline)
        self.rules = [self._new(f"RULE_{index}") for index in range(len(pipeline.requires))]

    def method(self, endpoint: Endpoint, slice_: Slice) -> str:
        return self._methods[endpoint.name, slice_.outputs]

    def _new(self, *wanted: str) -> str:
        """The first of `wanted` that is free; if none is, the last, lengthened until it is."""
        for name in map(identifier, wanted):
            if name not in self._taken:
                break
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def python_files(pipeline: Pipeline) -> dict[str, str]:
    """The files of Python stages, as the pipeline names them, and what each is called in the build: by its own name,
    with a number behind it where another file has that name."""
    found: dict[str, str] = {}
    for stage in pipeline.stages:
        file = stage.part.rpartition(":")[0]
        if stage.kind == "python" and file not in found:
            path = PurePosixPath(file)
            names = (path.name, *(f"{path.stem}_{n}{path.suffix}" for n in range(2, len(found) + 3)))
            found[file] = next(name for name in names if name not in found.values())
    return found


def _knobs(pipeline: Pipeline) -> Iterable[str]:
    for stage in pipeline.stages:
        for key, setting in stage.keys:
            if isinstance(setting.value, Open) and key != "seed":
                yield setting.value.field
