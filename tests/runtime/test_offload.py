"""Blocks whose weights lie on the host: results, the order of copies, what is read when, and memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from omnic.runtime.errors import Elsewhere
from omnic.runtime.home import Home
from omnic.runtime.link import AtOnce, Pages
from omnic.runtime.modules import filled
from omnic.runtime.offload import Offload
from omnic.runtime.tensors import Seeded
from omnic.runtime.weights import Damaged

CPU = torch.device("cpu")
GPU = torch.device("cuda") if torch.cuda.is_available() else CPU


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return found


class Transformer(nn.Module):
    """Blocks of two sizes, as FLUX has them, and weights beside them."""

    def __init__(self, double: int = 3, single: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.transformer_blocks = nn.ModuleList(Block(24) for _ in range(double))
        self.single_transformer_blocks = nn.ModuleList(Block(16) for _ in range(single))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in (*self.transformer_blocks, *self.single_transformer_blocks):
            x = block(x)
        return x


@dataclass
class Slow:
    """Satisfies `link.Link`, and is as unkind as a link may be: a copy that has begun leaves garbage, and ends when
    somebody waits for it."""

    log: list[str] = field(default_factory=list)
    work: int = 0
    pinned: int = 0
    _open: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def pin(self, pages: Pages) -> None:
        self.pinned += 1

    def worked(self) -> int:
        self.work += 1
        return self.work

    def copy(self, into: Tensor, source: Tensor, after: int) -> int:
        self.log.append(f"copy after {after}")
        into.fill_(255)  # not a number, in any dtype
        number = len(self.log)
        self._open[number] = (into, source)
        return number

    def wait(self, copied: int) -> None:
        for number in sorted(n for n in self._open if n <= copied):
            into, source = self._open.pop(number)
            into.copy_(source)
        self.log.append("wait")

    def close(self) -> None:
        self._open.clear()
        self.log.append("close")


def made(resident: int | None, link: Any = None, device: torch.device = CPU, **shape: int) -> tuple[Any, Any]:
    """A transformer of always the same weights, and its offload."""
    offload = None if resident is None else Offload(resident, device, link)
    module = filled(lambda: Transformer(**shape), Seeded(1), Home("float32", device, offload), lambda done, total: None)
    if offload is not None:
        offload.begin()
    return module, offload


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("resident", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("link", [AtOnce, Slow])
def test_every_pass_gives_the_bits_that_resident_blocks_give(resident: int, link: Any) -> None:
    plain, _ = made(None)
    module, offload = made(resident, link())
    for seed in range(3):
        x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed))
        assert module(x).equal(plain(x))
    assert offload.missed == 0


def test_a_block_is_fetched_while_the_one_before_it_runs_and_the_first_while_the_last_does() -> None:
    link = Slow()
    module, offload = made(0, link, double=0)
    assert link.log == ["copy after 1", "copy after 1"]  # the first two blocks, once their buffers are free
    module(torch.zeros(1, 1, 8))
    # block, its work's mark, and then what has its buffer next
    assert link.log[2:] == [
        "wait",
        "copy after 2",
        "wait",
        "copy after 3",
        "wait",
        "copy after 4",
        "wait",
        "copy after 5",
    ]
    assert offload.fetched_bytes == 6 * offload._buffers[0].numel()


def test_no_copy_overwrites_weights_before_the_block_that_reads_them_has_run() -> None:
    """A copy into a buffer comes after the mark of the last block that had it."""
    link = Slow()
    module, offload = made(0, link)
    last: dict[int, int] = {0: 1, 1: 1}
    for _ in range(2):
        module(torch.zeros(1, 1, 8))
    (line,) = offload._lines
    runs = iter([away.slot for away in line] * 2)
    for number, entry in enumerate(link.log[2:], 2):
        if entry == "wait":
            slot = next(runs)
            last[slot] = max(last.values()) + 1
            assert link.log[number + 1] == f"copy after {last[slot]}"


def test_an_error_in_a_block_leaves_the_next_pass_as_it_was() -> None:
    plain, _ = made(None)
    module, _ = made(1, Slow())
    with pytest.raises(RuntimeError):
        module(torch.zeros(1, 1, 9))
    with pytest.raises(RuntimeError):
        module.transformer_blocks[0](torch.zeros(1, 1, 9))
    x = torch.ones(1, 1, 8)
    assert module(x).equal(plain(x))


def test_blocks_that_are_left_out_are_not_waited_for_and_those_after_them_are_right() -> None:
    plain, _ = made(None)
    module, offload = made(0, Slow())
    x = torch.ones(1, 1, 8)
    for at in (0, 0, 5, 2, 6):
        block = (*module.transformer_blocks, *module.single_transformer_blocks)[at]
        like = (*plain.transformer_blocks, *plain.single_transformer_blocks)[at]
        assert block(x).equal(like(x))
    assert offload.missed > 0


def test_two_transformers_share_the_buffers() -> None:
    """As two experts do, of which one runs at a time."""
    plain, _ = made(None)
    offload = Offload(1, CPU, Slow())
    both = [filled(Transformer, Seeded(1), Home("float32", CPU, offload), lambda done, total: None) for _ in range(2)]
    offload.begin()
    x = torch.ones(1, 1, 8)
    for number in (0, 0, 1, 0, 1, 1):
        assert both[number](x).equal(plain(x))
    assert offload.missed == 6  # the first two blocks, where the other ran before: 0 to 1, 1 to 0, 0 to 1


def test_the_host_has_one_copy_of_what_left_and_the_device_two_buffers_of_the_largest_block() -> None:
    module, offload = made(2)
    blocks = [*module.transformer_blocks, *module.single_transformer_blocks]
    sizes = [sum(-(-p.nbytes // 256) * 256 for p in block.parameters()) for block in blocks]
    gone = [0, 1, 3, 4, 6]  # five of seven, spread evenly
    assert offload.host_bytes == sum(sizes[at] for at in gone)
    assert offload.device_bytes == 2 * sizes[0]
    inside = [p for at in gone for p in blocks[at].parameters()]
    starts = [buffer.data_ptr() for buffer in offload._buffers]
    assert all(any(0 <= p.data_ptr() - start < sizes[0] for start in starts) for p in inside)


def test_weights_are_read_once_and_straight_to_where_they_stay() -> None:
    class Noted(Seeded):
        def __init__(self) -> None:
            super().__init__(1)
            self.into: dict[str, int] = {}

        def read(self, name: str, into: Tensor) -> None:
            assert name not in self.into
            self.into[name] = into.data_ptr()
            super().read(name, into)

    source, offload = Noted(), Offload(2, CPU)
    filled(Transformer, source, Home("float32", CPU, offload), lambda done, total: None)
    (line,) = offload._lines
    for away in line:
        start, count = away.pages.bytes.data_ptr(), away.pages.bytes.numel()
        assert sum(start <= at < start + count for at in source.into.values()) == len(away.places) == 6


def test_weights_keep_their_address_over_passes() -> None:
    """What a captured graph or a compiled block needs."""
    module, _ = made(0)
    before = {name: p.data_ptr() for name, p in module.named_parameters()}
    for _ in range(2):
        module(torch.zeros(1, 1, 8))
    assert {name: p.data_ptr() for name, p in module.named_parameters()} == before


def test_what_is_written_to_the_weights_before_it_begins_counts() -> None:
    """As adapters that are added for good."""
    plain, _ = made(None)
    offload = Offload(0, CPU)
    module: Any = filled(Transformer, Seeded(1), Home("float32", CPU, offload), lambda done, total: None)
    for one in (plain, module):
        one.single_transformer_blocks[1].up.weight.mul_(2)
    offload.begin()
    x = torch.ones(1, 1, 8)
    assert module(x).equal(plain(x))


def test_a_module_without_enough_blocks_cannot_be_offloaded() -> None:
    offload = Offload(5, CPU)
    filled(Transformer, Seeded(1), Home("float32", CPU, offload), lambda done, total: None)
    with pytest.raises(ValueError, match="no blocks that could leave"):
        offload.begin()


def test_all_that_lies_on_the_host_is_pinned_or_the_stage_cannot_run_here() -> None:
    link = Slow()
    made(2, link)
    assert link.pinned == 5

    class Unpinned(Slow):
        def pin(self, pages: Pages) -> None:
            raise RuntimeError("out of memory\nand more")

    with pytest.raises(Elsewhere, match=r"does not let .* be pinned.* \(out of memory\): let more of them stay"):
        made(2, Unpinned())


def test_closing_waits_for_copies_and_lets_go_of_both_sides() -> None:
    link = Slow()
    _, offload = made(0, link)
    offload.close()
    assert link.log[-1] == "close"
    assert (offload.host_bytes, offload.device_bytes) == (0, 0)


def test_a_damaged_checkpoint_is_said_as_ever() -> None:
    class Short(Seeded):
        def __contains__(self, name: object) -> bool:
            return name != "single_transformer_blocks.1.up.weight"

    with pytest.raises(Damaged, match=r"lacks `single_transformer_blocks\.1\.up\.weight`"):
        filled(Transformer, Short(1), Home("float32", CPU, Offload(0, CPU)), lambda done, total: None)


@pytest.mark.skipif(GPU == CPU, reason="needs a GPU")
@pytest.mark.parametrize("resident", [0, 3])
def test_a_gpu_gives_the_bits_that_resident_blocks_give(resident: int) -> None:
    plain, _ = made(None, device=GPU, double=9, single=10)
    module, offload = made(resident, device=GPU, double=9, single=10)
    for seed in range(4):
        x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(seed)).to(GPU)
        assert module(x).equal(plain(x))
    offload.close()
