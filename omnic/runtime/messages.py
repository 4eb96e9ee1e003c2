"""What server and worker say to each other: msgpack records, each behind its length, over a socket pair.

A request is known by its `id` on both sides. Pieces of one request carry sequence numbers and are sent against
credit that the server gives; everything else is small and sent at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec

from omnic.expr import Size
from omnic.runtime.flow import Finished, Piece, Step

MAX_BYTES = 1 << 30
_PORTION_BYTES = 8 << 20  # of a video: credit counts portions, so this bounds what waits to be read
_LENGTH = struct.Struct(">I")
_SIZE, _ARRAY = 1, 2  # extension codes


class ProtocolError(RuntimeError):
    """The other side broke the protocol, or its stream is damaged."""


class _Message(msgspec.Struct, frozen=True, tag_field="is", omit_defaults=True):
    pass


# --- server to worker -------------------------------------------------------------------------------------------------


class Start(_Message, frozen=True, tag="start"):
    """Run a slice. At most `credit` pieces may be sent before more credit comes. `previews` are wanted on the way."""

    id: int
    method: str
    arguments: dict[str, Any]
    credit: int
    previews: int = 0

    @classmethod
    def of(cls, id: int, method: str, arguments: dict[str, Any], credit: int, previews: int = 0) -> Start:
        """A Start whose sizes arrive as sizes; msgspec would send their fields."""
        return cls(id, method, sized(arguments), credit, previews)


class Credit(_Message, frozen=True, tag="credit"):
    id: int
    pieces: int


class Cancel(_Message, frozen=True, tag="cancel"):
    """Stop a request at its next step. It still ends with exactly one Ended, Failed or Cancelled."""

    id: int


class Ping(_Message, frozen=True, tag="ping"):
    number: int


# --- worker to server -------------------------------------------------------------------------------------------------


class Loading(_Message, frozen=True, tag="loading"):
    """Bytes of a stage loaded so far, and to load."""

    stage: str
    done: int
    total: int


class Ready(_Message, frozen=True, tag="ready"):
    """Every stage is loaded."""


class Broken(_Message, frozen=True, tag="broken"):
    """Loading failed. `final` where trying again cannot help (weights missing, build stale)."""

    reason: str
    final: bool


class Part(_Message, frozen=True, tag="part"):
    """A piece of an answer. `number` counts the pieces of the request from 0."""

    id: int
    number: int
    output: str
    index: int
    value: Any

    @property
    def piece(self) -> Piece:
        return Piece(self.output, self.index, self.value)


class Stepped(_Message, frozen=True, tag="stepped"):
    """How far an iterative stage of a request has come."""

    id: int
    stage: str
    done: int
    total: int
    preview: Any = None

    @property
    def step(self) -> Step:
        return Step(self.stage, self.done, self.total, self.preview)


class Ended(_Message, frozen=True, tag="ended"):
    """The request completed. `parts` is how many pieces were sent."""

    id: int
    parts: int
    finished: Finished


class Failed(_Message, frozen=True, tag="failed"):
    """The request failed. `fault` says whose it is: request, stage, or bug."""

    id: int
    fault: str
    message: str
    field: str | None = None
    status: int = 500
    code: str | None = None
    stage: str | None = None
    retryable: bool = False


class Cancelled(_Message, frozen=True, tag="cancelled"):
    """The request was cancelled and every stage has let go of it."""

    id: int


class Pong(_Message, frozen=True, tag="pong"):
    """The worker's event loop is alive. `stats`: what each stage counts."""

    number: int
    stats: dict[str, dict[str, float]]


ToWorker: TypeAlias = Start | Credit | Cancel | Ping
ToServer: TypeAlias = Loading | Ready | Broken | Part | Stepped | Ended | Failed | Cancelled | Pong


# --- bytes ------------------------------------------------------------------------------------------------------------


def sized(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with their sizes in the form that `_decode` reads."""
    return {
        name: msgspec.msgpack.Ext(_SIZE, str(value).encode()) if isinstance(value, Size) else value
        for name, value in arguments.items()
    }


def _encode(value: Any) -> Any:
    if hasattr(value, "__array_interface__"):
        import numpy as np

        array = np.asarray(value)
        if not array.shape:
            return array.item()
        head = f"{array.dtype.str} {' '.join(map(str, array.shape))}\n".encode()
        return msgspec.msgpack.Ext(_ARRAY, head + array.tobytes())  # in C order, whatever the strides
    raise TypeError(f"{type(value).__name__} cannot be sent between processes")


def _decode(code: int, data: memoryview) -> Any:
    raw = bytes(data)
    if code == _SIZE:
        return Size(*map(int, raw.decode().split("x")))
    if code == _ARRAY:
        import numpy as np

        head, _, body = raw.partition(b"\n")
        dtype, *shape = head.decode().split()
        return np.frombuffer(body, dtype).reshape([int(n) for n in shape])
    raise ProtocolError(f"unknown extension {code}")


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode)
_TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker, ext_hook=_decode)
_ARGUMENTS: msgspec.msgpack.Decoder[dict[str, Any]] = msgspec.msgpack.Decoder(dict[str, Any], ext_hook=_decode)
_TO_SERVER: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer, ext_hook=_decode)


def pack(message: ToWorker | ToServer) -> bytes:
    """A message with its length in front."""
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


def portions(value: Any) -> Iterator[Any]:
    """A piece in portions that are small enough to send: frames of a video [frames, height, width, 3] a few at a time,
    anything else as it is."""
    if getattr(value, "ndim", 0) != 4 or value.nbytes <= _PORTION_BYTES:
        yield value
        return
    frames = max(1, _PORTION_BYTES // value[:1].nbytes)
    for first in range(0, len(value), frames):
        yield value[first : first + frames]


def pack_arguments(arguments: dict[str, Any]) -> bytes:
    """The arguments of a slice, to be kept for later."""
    return _ENCODER.encode(sized(arguments))


def unpack_arguments(data: bytes) -> dict[str, Any]:
    """What `pack_arguments` packed. Raises ProtocolError."""
    arguments: dict[str, Any] = _unpack(_ARGUMENTS, data)
    return arguments


def to_worker(body: bytes) -> ToWorker:
    """Raises ProtocolError."""
    message: ToWorker = _unpack(_TO_WORKER, body)
    return message


def to_server(body: bytes) -> ToServer:
    """Raises ProtocolError."""
    message: ToServer = _unpack(_TO_SERVER, body)
    return message


def _unpack(decoder: msgspec.msgpack.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, ValueError) as error:
        raise ProtocolError(f"not a message: {error}") from None


async def receive(reader: asyncio.StreamReader) -> bytes | None:
    """The body of the next message; None when the other side has closed. Raises ProtocolError."""
    try:
        (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        if length > MAX_BYTES:
            raise ProtocolError(f"a message of {length} bytes")
        return await reader.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
