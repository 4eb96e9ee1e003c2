"""Causal video decoders, a frame of latents at a time: what a layer over time has to remember of the frames before is
state of one request, and so frames come out as if all were decoded together. Also in tiles, without seams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from torch import Tensor, nn

from omnic.expr import Size


class Memory:
    """What the layers of one request remember between frames: a place each, taken in the order they run.

    diffusers' own layers (Wan, Qwen-Image) are handed `places` and `at` as they are.
    """

    def __init__(self, module: nn.Module) -> None:
        self.places: list[Any] = [None] * sum(isinstance(layer, nn.Conv3d) for layer in module.modules())
        self.at = [0]
        self.first = True  # no frame has been decoded

    def exchange(self, make: Callable[[Any], Any]) -> Any:
        """What the place of the layer that runs held; it holds from now on what `make` makes of that."""
        place = self.at[0]
        held = self.places[place]
        self.places[place] = make(held)
        self.at[0] += 1
        return held

    def frame(self) -> Memory:
        """Itself, before the layers run for another frame."""
        self.at[0] = 0
        return self

    def done(self) -> None:
        self.first = False

    def forget(self) -> None:
        self.places.clear()


class Layers(Protocol):
    """A causal decoder. Each of its functions takes one frame of latents, or what layers before have made of it.

    `head` looks at the whole picture (it has attention); a block sees what convolutions reach: `reach[i]` places
    beyond what is wanted of it, in places of what it is given, and `reach[-1]` is that of `tail`. Where `doubles`,
    a block makes twice as many rows and columns. `module` is the decoder, `beside` are modules used besides it.
    `scale` is pixels a row of latents; `later` how many frames each frame of latents after the first stands for.
    """

    module: nn.Module
    beside: Sequence[nn.Module]
    blocks: Sequence[nn.Module]
    doubles: tuple[bool, ...]
    reach: tuple[int, ...]
    scale: int
    later: int

    def head(self, z: Tensor, memory: Memory) -> Tensor:
        """[1, C, 1, h, w] -> [1, D, 1, h, w]."""
        ...

    def block(self, index: int, x: Tensor, memory: Memory) -> Tensor: ...

    def tail(self, x: Tensor, memory: Memory) -> Tensor:
        """-> [1, 3, n, H, W] in -1..1: n is 1 for the first frame, then `later`."""
        ...


def reach_of(blocks: Sequence[tuple[int, int, bool]]) -> tuple[int, ...]:
    """`Layers.reach`. Of each block, how many places its convolutions reach before rows and columns are doubled and
    after, and whether they are."""
    reach = [1]  # the last convolution
    for before, after, doubles in reversed(blocks):
        beyond = reach[0] + after
        reach.insert(0, before + (-(-beyond // 2) if doubles else beyond))
    return tuple(reach)


class Frame(nn.Module):
    """A frame through all layers, as a module: what is remembered goes in and comes out, and nothing stays in it. A
    list of it is used up: what a layer remembers of earlier frames is let go of when it has seen this one."""

    def __init__(self, layers: Layers) -> None:
        super().__init__()
        self._layers = layers
        self.parts = nn.ModuleList([layers.module, *layers.beside])

    def forward(self, z: Tensor, places: Sequence[Any], first: bool) -> tuple[Tensor, list[Any]]:
        """The next frame of latents [1, C, 1, h, w] -> frames [1, 3, n, H, W] in -1..1."""
        memory = Memory(self._layers.module)
        memory.places, memory.first = places if isinstance(places, list) else list(places), first
        x = [self._layers.head(z, memory)]  # a list, to hand what is in it on without holding on to it
        for index in range(len(self._layers.blocks)):
            x.append(self._layers.block(index, x.pop(), memory))
        return self._layers.tail(x.pop(), memory), memory.places


class Decoding:
    """A decode in work."""

    def __init__(self, frame: Frame, layers: Layers) -> None:
        self._frame, self._memory = frame, Memory(layers.module)

    def frame(self, z: Tensor) -> Tensor:
        """As `Frame.forward`."""
        made: Tensor
        made, self._memory.places = self._frame(z, self._memory.places, self._memory.first)
        self._memory.done()
        return made


class Tiling:
    """A decode in work whose last layers, which take most of the memory, see a part of the picture at a time.

    Each sees beyond its tile as far as its layers reach, so that tiles fit without blending: they differ from the
    whole by rounding alone.
    """

    def __init__(self, layers: Layers, shape: tuple[int, int], tile: Size) -> None:
        """`shape` is height and width of the latents, `tile` a size in pixels."""
        self._layers, self._memory = layers, Memory(layers.module)
        rows, columns = (
            _spans(length, max(1, side // layers.scale))
            for length, side in zip(shape, (tile.height, tile.width), strict=True)
        )
        self.tiles = tuple(Tile(layers, (row, column), shape) for row in rows for column in columns)

    def features(self, z: Tensor) -> Tensor:
        """What the first layers make of the next frame of latents [1, C, 1, h, w], for `Tile.frame` of every tile."""
        made = self._layers.head(z, self._memory.frame())
        self._memory.done()
        return made

    def frame(self, z: Tensor) -> Tensor:
        """As `Decoding.frame`."""
        features = self.features(z)
        whole: Tensor | None = None
        for tile in self.tiles:
            part = tile.frame(features)
            if whole is None:
                size = [length * self._layers.scale for length in features.shape[3:]]
                whole = part.new_empty(*part.shape[:3], *size)
            whole[(..., *tile.where)] = part
        assert whole is not None, "there are tiles"
        return whole


@dataclass(frozen=True, slots=True)
class _Span:
    """From `begin` to before `end`."""

    begin: int
    end: int

    def wider(self, margin: int, limit: int) -> _Span:
        return _Span(max(0, self.begin - margin), min(limit, self.end + margin))

    def times(self, factor: int) -> _Span:
        return _Span(self.begin * factor, self.end * factor)

    def within(self, other: _Span) -> slice:
        return slice(self.begin - other.begin, self.end - other.begin)


class Tile:
    """The last layers of a decode, for one tile."""

    def __init__(self, layers: Layers, spans: tuple[_Span, _Span], shape: tuple[int, int]) -> None:
        """`spans` are its rows and columns of the latents, of `shape` in all."""
        self._layers, self._spans, self._shape = layers, spans, shape
        self._memory = Memory(layers.module)

    @property
    def where(self) -> tuple[slice, slice]:
        """Its place in the picture."""
        rows, columns = (span.times(self._layers.scale) for span in self._spans)
        return slice(rows.begin, rows.end), slice(columns.begin, columns.end)

    def forget(self) -> None:
        """Lets go of what it remembers: there are no more frames."""
        self._memory.forget()

    def frame(self, features: Tensor) -> Tensor:
        """`Tiling.features` -> its part [1, 3, n, rows, columns] of the next frames, in -1..1."""
        layers, memory, x, factor = self._layers, self._memory.frame(), features, 1
        seen = tuple(_Span(0, length) for length in self._shape)
        for index, doubles in enumerate(layers.doubles):
            x, seen = self._cut(x, seen, layers.reach[index], factor)
            x = layers.block(index, x, memory)
            if doubles:
                factor, seen = 2 * factor, tuple(span.times(2) for span in seen)
        x, seen = self._cut(x, seen, layers.reach[-1], factor)
        x = layers.tail(x, memory)
        memory.done()
        grown = layers.scale // factor  # of a decoder whose tail makes patches of its places
        return self._cut(x, tuple(span.times(grown) for span in seen), 0, layers.scale)[0]

    def _cut(self, x: Tensor, seen: tuple[_Span, ...], reach: int, factor: int) -> tuple[Tensor, tuple[_Span, ...]]:
        """What is needed of x, which is of the spans `seen` of a picture `factor` times as large as the latents."""
        wanted = tuple(
            span.times(factor).wider(reach, length * factor)
            for span, length in zip(self._spans, self._shape, strict=True)
        )
        rows, columns = (w.within(s) for w, s in zip(wanted, seen, strict=True))
        return x[..., rows, columns], wanted


def _spans(length: int, most: int) -> list[_Span]:
    """`length` in as few spans of at most `most` as it takes, as even as can be."""
    count = -(-length // most)
    ends = [length * i // count for i in range(count + 1)]
    return [_Span(a, b) for a, b in pairwise(ends)]
