"""Python stages and `std.resample`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omnic.runtime.edges import Port
from omnic.runtime.errors import Cancelled, RequestError, StageFailed
from omnic.runtime.flow import Flow
from omnic.runtime.segment import Sentences
from omnic.runtime.transform import Python, Resample

GLUE = '''
import asyncio
import threading
from dataclasses import dataclass
from omnic.runtime.errors import RequestError

THREADS = set()


@dataclass
class Counter:
    count: int = 0


def as_messages(text):
    """Text as a conversation."""
    THREADS.add(threading.current_thread().name)
    return [{"role": "user", "content": text}]


async def later(text, again=2):
    await asyncio.sleep(0)
    return text * again


def louder(audio):
    return audio * 2


def parts(text):
    return {"first": text[:1], "rest": text[1:]}


def wrong(text):
    return {"first": text, "last": text}


def generator(text):
    yield text


def fails(text):
    number = len(text)
    return number // 0


def refuses(text):
    raise RequestError("no such thing", "text")


STARTED, GO_ON = threading.Event(), threading.Event()


def waits(text):
    STARTED.set()
    assert GO_ON.wait(10)
    return text


MEETING = threading.Barrier(4, timeout=10)


def meets(text):
    MEETING.wait()
    return text
'''


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    file = tmp_path / "glue.py"
    file.write_text(GLUE)
    return file


def stage(
    file: Path, function: str, inputs: tuple[str, ...] = ("text",), outputs: tuple[str, ...] = ("out",), **given: str
) -> Python:
    kinds = dict.fromkeys(outputs, "json")
    made = Python("glue", file=file, function=function, inputs=inputs, outputs=kinds | given)
    made.load(lambda *_: None)
    return made


async def call(stage: Python, outputs: tuple[str, ...] = ("out",), **inputs: Any) -> dict[str, Any]:
    flow = Flow(1)
    running = stage.start(flow, **inputs)
    for name in outputs:
        flow.output(name, getattr(running, name))
    return await flow.result()


def test_a_function_takes_its_inputs_by_name_and_runs_on_a_thread(glue: Path) -> None:
    made = stage(glue, "as_messages")
    result = asyncio.run(call(made, text="Hi"))
    assert result["out"] == [{"role": "user", "content": "Hi"}]
    assert threading.current_thread().name not in made._function.__globals__["THREADS"]  # type: ignore[union-attr]
    assert made.stats()["requests"] == 1
    assert result["finished"].stages["glue"].keys() == {"busy_seconds"}


def test_an_async_function_is_awaited(glue: Path) -> None:
    assert asyncio.run(call(stage(glue, "later"), text="ab"))["out"] == "abab"


def test_text_that_streams_in_is_joined(glue: Path) -> None:
    async def main(pieces: list[str]) -> Any:
        flow, port = Flow(), Port()

        async def work() -> None:
            for piece in pieces:
                port.send(piece)
            port.close()

        flow.run(work)
        running = stage(glue, "later").start(flow, text=port.channel(4, Sentences()))
        flow.output("out", running.out)
        return (await flow.result())["out"]

    assert asyncio.run(main(["One. T", "wo."])) == "One. Two." * 2
    assert asyncio.run(main([])) == ""


def test_arrays_pass_as_they_are(glue: Path) -> None:
    result = asyncio.run(call(stage(glue, "louder", ("audio",)), audio=np.ones(3, np.float32)))
    assert result["out"].tolist() == [2, 2, 2]


def test_several_outputs_come_from_a_dict(glue: Path) -> None:
    result = asyncio.run(call(stage(glue, "parts", outputs=("first", "rest")), ("first", "rest"), text="abc"))
    assert (result["first"], result["rest"]) == ("a", "bc")


@pytest.mark.parametrize(
    ("function", "message"),
    [("wrong", "must return a dict of first, rest, not one of first, last"), ("later", "not str")],
)
def test_several_outputs_that_do_not_match_are_named(glue: Path, function: str, message: str) -> None:
    with pytest.raises(StageFailed, match=message):
        asyncio.run(call(stage(glue, function, outputs=("first", "rest")), ("first",), text="abc"))


def test_what_a_function_raises_names_file_and_line(glue: Path) -> None:
    line = GLUE.splitlines().index("    return number // 0") + 1
    with pytest.raises(StageFailed, match=rf"stage `glue` failed: ZeroDivisionError: .* \(glue.py:{line}\)"):
        asyncio.run(call(stage(glue, "fails"), text="abc"))


def test_a_function_may_refuse_a_request(glue: Path) -> None:
    with pytest.raises(RequestError) as caught:
        asyncio.run(call(stage(glue, "refuses"), text="abc"))
    assert caught.value.field == "text"


@pytest.mark.parametrize(("kind", "value"), [("text", "5"), ("text", "None"), ("chat", "'Hi'"), ("int", "1.5")])
def test_a_result_of_another_kind_is_a_failure_of_the_stage(glue: Path, kind: str, value: str) -> None:
    glue.write_text(f"def gives(text):\n    return {value}\n")
    with pytest.raises(StageFailed, match=f"`gives` must give `out` as {kind}, not as "):
        asyncio.run(call(stage(glue, "gives", out=kind), text="abc"))


def test_a_function_that_ends_the_process_ends_its_request(glue: Path) -> None:
    glue.write_text("import sys\ndef leaves(text):\n    sys.exit(text)\n")
    with pytest.raises(StageFailed, match=r"SystemExit: abc \(glue\.py:3\)"):
        asyncio.run(call(stage(glue, "leaves"), text="abc"))


def test_a_generator_is_not_a_result(glue: Path) -> None:
    with pytest.raises(StageFailed, match="generator"):
        asyncio.run(call(stage(glue, "generator"), text="abc"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = (", r"SyntaxError.*glue.py:1"),
        ("import not_there_at_all", r"ModuleNotFoundError.*glue.py:1"),
        ("def other(): ...", "AttributeError"),
        ("raise SystemExit(1)", r"SystemExit.*glue.py:1"),
    ],
)
def test_a_file_that_does_not_load_says_where(glue: Path, content: str, message: str) -> None:
    glue.write_text(content)
    with pytest.raises(StageFailed, match=message):
        stage(glue, "as_messages")


def test_a_missing_file_is_a_failure_of_the_stage(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"gone\.py"):
        stage(tmp_path / "gone.py", "as_messages")


def test_unknown_inputs_are_refused(glue: Path) -> None:
    with pytest.raises(TypeError, match="takes text"):
        asyncio.run(call(stage(glue, "later"), speech="x"))


def test_a_cancelled_request_does_not_wait_for_its_function(glue: Path) -> None:
    made = stage(glue, "waits")
    shared = made._function.__globals__  # type: ignore[union-attr]

    async def main() -> None:
        flow = Flow()
        flow.output("out", made.start(flow, text="x").out)
        reading = asyncio.create_task(flow.result())
        await asyncio.to_thread(shared["STARTED"].wait)
        flow.cancel()
        with pytest.raises(Cancelled):
            await reading
        assert not shared["GO_ON"].is_set()
        shared["GO_ON"].set()
        await made.close()

    asyncio.run(main())


def test_requests_run_side_by_side(glue: Path) -> None:
    async def main() -> None:
        made = stage(glue, "meets")  # returns once four have met
        results = await asyncio.gather(*(call(made, text=str(n)) for n in range(4)))
        assert [r["out"] for r in results] == ["0", "1", "2", "3"]
        await made.close()

    asyncio.run(main())


@pytest.mark.parametrize("chunk", [1000, 7777, 24_000])
def test_resampled_sound_streams_as_the_whole(chunk: int) -> None:
    made = Resample("down", source_rate=24_000.0, rate=16_000.0)
    made.load(lambda *_: None)
    sound = np.random.default_rng(0).standard_normal(24_000).astype(np.float32)

    async def main(chunks: list[Any]) -> Any:
        flow, port = Flow(), Port()

        async def work() -> None:
            for samples in chunks:
                await port.room()
                port.send(samples)
            port.close()

        flow.run(work)
        flow.output("audio", made.start(flow, audio=port.channel(2)).audio)
        return (await flow.result())["audio"]

    whole = asyncio.run(main([sound]))
    assert len(whole) == 16_000
    assert np.array_equal(asyncio.run(main(np.split(sound, range(chunk, 24_000, chunk)))), whole)
    assert made.stats() == {"requests": 2, "audio_seconds": pytest.approx(2.0)}


def test_no_sound_resamples_to_no_sound() -> None:
    made = Resample("down", source_rate=24_000, rate=16_000)

    async def main() -> Any:
        flow, port = Flow(), Port()

        async def work() -> None:
            port.close()

        flow.run(work)
        flow.output("audio", made.start(flow, audio=port.channel(2)).audio)
        return (await flow.result())["audio"]

    assert asyncio.run(main()) is None
