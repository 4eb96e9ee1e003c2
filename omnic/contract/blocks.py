"""Which weights of a transformer can leave a device between their uses: its repeated blocks. Planner and runtime go by
the same rules."""

from __future__ import annotations

LISTS = ("transformer_blocks", "single_transformer_blocks", "blocks", "layers")
"""What diffusers calls the lists of a transformer's blocks, in the order in which they run."""

FEWEST = 3
"""Blocks that must leave a device for anything to be gained: two buffers take their places."""

ALIGN = 256
"""Bytes of whose multiples each tensor in a buffer begins: what libraries that multiply matrices count on."""


def aligned(count: int) -> int:
    """The bytes that a tensor of `count` bytes takes in a buffer."""
    return -(-count // ALIGN) * ALIGN


def leaving(count: int, resident: int) -> tuple[int, ...]:
    """The blocks, of `count` that run one after the other, that leave the device where `resident` stay.

    Spread evenly: each copy then has the work of as many blocks that stay to hide behind, so that a pass takes the
    longer of all work and all copies. With those that stay in one piece, the link would stand still for as long as they
    run, as only two blocks can be fetched ahead.
    """
    gone = count - resident
    return tuple((at + 1) * count // gone - 1 for at in range(gone))
