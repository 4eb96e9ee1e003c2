"""The repeated blocks of a transformer, from the names and shapes of its tensors: `blocks`."""

from __future__ import annotations

import re
from math import prod

from omnic.catalog.diffusers import Component
from omnic.contract.blocks import LISTS, aligned

_NAME = re.compile(rf"(?P<list>{'|'.join(LISTS)})\.(?P<at>\*|\d+)\.(?P<rest>.+)")


def blocks(component: Component, width: int, wide: tuple[str, ...] = ()) -> tuple[int, ...]:
    """Bytes of each block, in the order in which they run, as a buffer holds them: each tensor begins at a multiple of
    `contract.blocks.ALIGN`. `width` is bytes an element, 4 for tensors with one of `wide` between the dots of their
    names. A tensor that some blocks of a list lack is taken to be one of the first.
    """
    found: dict[str, list[int]] = {}
    matches = [(match, *held) for name, held in component.tensors.items() if (match := _NAME.fullmatch(name))]
    for name in LISTS:
        mine = [(match, count, shape) for match, count, shape in matches if match["list"] == name]
        # where only the block's number varies, there is one tensor a block at most
        single = [count for match, count, _ in mine if match["at"] == "*" and "*" not in match["rest"]]
        found[name] = [0] * max(single, default=0)
        for match, count, shape in mine:
            element = 4 if not set(wide).isdisjoint(match["rest"].split(".")) else width
            size = aligned(prod(shape) * element)
            if match["at"] != "*":
                found[name][int(match["at"])] += count * size
                continue
            total = len(found[name])
            for at in range(min(count, total)):
                found[name][at] += max(1, count // total) * size
    return tuple(size for sizes in found.values() for size in sizes)
