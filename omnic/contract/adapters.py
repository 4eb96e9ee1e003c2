"""The names of LoRA tensors, as PEFT and diffusers write them: one truth for the checker and the runtime.

A layer's two halves are `….lora_A.weight` [rank, in] and `….lora_B.weight` [out, rank], or `….lora_down.weight` and
`….lora_up.weight`; beside them may stand `….alpha`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

BASE = "base"  # in place of an adapter's name: none
_HALVES = {"lora_A": "a", "lora_down": "a", "lora_B": "b", "lora_up": "b"}
_NAME = re.compile(r"(?P<layer>.+)\.(?P<half>lora_A|lora_B|lora_down|lora_up)(?:\.default)?\.weight")
_PREFIXES = ("base_model.model.", "base_model.")  # that PEFT puts before the names of a model's own modules

Layers = Mapping[str, tuple[str, str]]
"""By layer, as the file calls it: the names of a and b."""


def layers(names: Iterable[str]) -> Layers:
    """The layers that tensors of these names add to. Raises ValueError, which names a tensor that adds to none."""
    halves: dict[str, dict[str, str]] = {}
    for name in names:
        if name.endswith(".alpha"):
            continue
        found = _NAME.fullmatch(name)
        if found is None:
            raise ValueError(f"omnic adds to linear layers; it cannot use `{name}`")
        halves.setdefault(found["layer"], {})[_HALVES[found["half"]]] = name
    for half in halves.values():
        if len(half) < 2:
            raise ValueError(f"`{next(iter(half.values()))}` lacks its other half")
    if not halves:
        raise ValueError("it holds no adapter")
    return {layer: (half["a"], half["b"]) for layer, half in halves.items()}


def place(layer: str, components: Collection[str]) -> tuple[str, str]:
    """Which of a pipeline's components (`transformer`, `unet`) a layer is of, and its name there. One whose name
    begins with none of them is of the first."""
    for prefix in _PREFIXES:
        layer = layer.removeprefix(prefix)
    head, _, rest = layer.partition(".")
    return (head, rest) if head in components else (next(iter(components)), layer)
