"""Messages between server and worker survive the trip; what is not a message is refused."""

from __future__ import annotations

import asyncio

import msgspec
import numpy as np
import pytest

from omnic.expr import Size
from omnic.runtime import messages as m
from omnic.runtime.flow import Finished, Step

TO_SERVER = [
    m.Loading("think", 3, 10),
    m.Ready(),
    m.Broken("no weights", final=True),
    m.Part(7, 0, "reply", 0, "héllo"),
    m.Stepped(7, "paint", 3, 20),
    m.Ended(7, 1, Finished(3, "stop", 4, 5, {"speech": "silent"}, {"think": {"busy_seconds": 0.5}})),
    m.Failed(7, "request", "too long", "messages", 400, "context_length_exceeded"),
    m.Cancelled(7),
    m.Pong(1, {"think": {"requests": 2.0}}),
]
TO_WORKER = [
    m.Start(1, "chat", {"messages": [{"role": "user", "content": "x"}]}, 4),
    m.Start(2, "draw", {"prompt": "x"}, 4, previews=2),
    m.Credit(1, 2),
    m.Cancel(1),
    m.Ping(9),
]


@pytest.mark.parametrize("message", TO_SERVER, ids=lambda message: type(message).__name__)
def test_what_a_worker_says_arrives_as_it_was(message: m.ToServer) -> None:
    assert m.to_server(m.pack(message)[4:]) == message


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: type(message).__name__)
def test_what_a_server_says_arrives_as_it_was(message: m.ToWorker) -> None:
    assert m.to_worker(m.pack(message)[4:]) == message


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(0, np.float32), np.arange(8)[::2]]
)
def test_an_array_keeps_dtype_shape_and_values(array: np.ndarray) -> None:
    part = m.to_server(m.pack(m.Part(1, 0, "speech", 0, array))[4:])
    assert isinstance(part, m.Part)
    assert part.value.dtype == array.dtype
    np.testing.assert_array_equal(part.value, array)


def test_a_size_arrives_as_a_size() -> None:
    start = m.to_worker(m.pack(m.Start.of(1, "draw", {"size": Size(512, 768)}, 1))[4:])
    assert isinstance(start, m.Start)
    assert start.arguments == {"size": Size(512, 768)}


def test_a_step_carries_its_preview() -> None:
    picture = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    stepped = m.to_server(m.pack(m.Stepped(1, "paint", 3, 20, picture))[4:])
    assert isinstance(stepped, m.Stepped)
    assert stepped.step == Step("paint", 3, 20)
    np.testing.assert_array_equal(stepped.step.preview, picture)


def test_arguments_can_be_kept() -> None:
    given = {"prompt": "a fox", "size": Size(64, 32), "steps": 4, "guidance": 1.5, "stop": ["a"], "none": None}
    assert m.unpack_arguments(m.pack_arguments(given)) == given
    with pytest.raises(m.ProtocolError):
        m.unpack_arguments(b"\xc1")


def test_a_long_piece_of_video_goes_in_portions_of_whole_frames() -> None:
    frames = np.arange(20, dtype=np.uint8).repeat(1 << 20).reshape(20, 1 << 10, 1 << 10, 1)
    portions = list(m.portions(frames))
    assert [len(p) for p in portions] == [8, 8, 4]
    np.testing.assert_array_equal(np.concatenate(portions), frames)
    large = np.zeros((2, 4000, 4000, 3), np.uint8)
    assert [p.shape for p in m.portions(large)] == [(1, 4000, 4000, 3)] * 2


@pytest.mark.parametrize("value", ["text", np.zeros((4000, 4000, 3), np.uint8), np.zeros((2, 8, 8, 3), np.uint8), None])
def test_other_pieces_go_whole(value: object) -> None:
    [only] = m.portions(value)
    assert only is value


def test_what_has_no_form_is_refused_where_it_is_sent() -> None:
    with pytest.raises(TypeError, match="object cannot be sent between processes"):
        m.pack(m.Start(1, "x", {"a": object()}, 1))


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"is": "start"}), m.pack(m.Ping(1))[4:]]
)
def test_what_is_no_message_is_refused_where_it_arrives(body: bytes) -> None:
    with pytest.raises(m.ProtocolError):
        m.to_server(body)


def test_a_stream_gives_whole_messages_then_none() -> None:
    async def go() -> list[bytes | None]:
        reader = asyncio.StreamReader()
        sent = m.pack(m.Ping(1)) + m.pack(m.Ping(2)) + m.pack(m.Ping(3))[:-1]
        for at in range(0, len(sent), 3):
            reader.feed_data(sent[at : at + 3])
        reader.feed_eof()
        return [await m.receive(reader) for _ in range(3)]

    first, second, third = asyncio.run(go())
    assert first is not None
    assert second is not None
    assert (m.to_worker(first), m.to_worker(second), third) == (m.Ping(1), m.Ping(2), None)


def test_a_length_beyond_reason_is_refused() -> None:
    async def go() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(b"\xff\xff\xff\xff")
        await m.receive(reader)

    with pytest.raises(m.ProtocolError, match="4294967295 bytes"):
        asyncio.run(go())
