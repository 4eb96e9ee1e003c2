"""Transform stages: functions written in Python, and parts that come with omnic (`std.resample`)."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from omnic.runtime.edges import Channel, Port
from omnic.runtime.errors import RequestError, StageFailed
from omnic.runtime.flow import Flow, join
from omnic.runtime.stage import Progress, Running

_KINDS: dict[str, type | tuple[type, ...]] = {
    "text": str, "enum": str, "chat": list, "int": int, "float": (int, float), "bool": bool,
}  # fmt: skip


class Python:
    """A function of a file in the build directory, as a stage: called once a request, with each input by name.

    Inputs that come in pieces are joined. `outputs` says what kind of value each is. What the function returns is its
    one output; a stage of several returns a dict with an entry for each. A plain function runs on one of `threads`
    threads, an `async` one on the event loop. What it raises is a StageFailed that names file and line, a RequestError
    excepted.
    """

    def __init__(
        self,
        name: str,
        *,
        file: Path,
        function: str,
        inputs: tuple[str, ...],
        outputs: Mapping[str, str],
        threads: int = 4,
    ) -> None:
        self.name = name
        self._file, self._called = file, function
        self._inputs, self._outputs = inputs, outputs
        self._function: Callable[..., Any] | None = None
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._totals = {"requests": 0.0, "busy_seconds": 0.0, "running": 0.0}

    def load(self, progress: Progress) -> None:
        """Runs the file, as an import would. Raises StageFailed."""
        spec = importlib.util.spec_from_file_location(f"omnic_stage_{self.name}", self._file)
        assert spec is not None, "stages are .py files"
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
            self._function = getattr(module, self._called)
        except (Exception, SystemExit) as error:
            raise self._failed(error) from error

    def start(self, flow: Flow, **inputs: Any) -> Running:
        if inputs.keys() - set(self._inputs):
            raise TypeError(f"stage `{self.name}` takes {', '.join(self._inputs)}, not {', '.join(inputs)}")
        ports = {name: Port() for name in self._outputs}
        flow.run(lambda: self._serve(inputs, ports, flow), stage=self.name)
        return Running(ports)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)  # a function cannot be made to stop

    def stats(self) -> dict[str, float]:
        return dict(self._totals)

    async def _serve(self, inputs: dict[str, Any], ports: dict[str, Port], flow: Flow) -> None:
        values = {name: await _whole(value) for name, value in inputs.items()}
        self._totals["requests"] += 1
        self._totals["running"] += 1
        begun = time.perf_counter()
        try:
            outputs = self._split(await self._call(values))
        except (RequestError, StageFailed):
            raise
        except (Exception, SystemExit) as error:  # a function may end itself, not this process
            raise self._failed(error) from error
        finally:
            seconds = time.perf_counter() - begun
            self._totals["busy_seconds"] += seconds
            self._totals["running"] -= 1
        flow.report.stages[self.name] = {"busy_seconds": seconds}
        for name, value in outputs.items():
            ports[name].send(value)
            ports[name].close()

    async def _call(self, values: dict[str, Any]) -> Any:
        assert self._function is not None, f"stage `{self.name}` is used before it is loaded"
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**values)
        call = functools.partial(self._function, **values)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _split(self, result: Any) -> dict[str, Any]:
        """What the function returned, by output."""
        if inspect.isgenerator(result) or inspect.isasyncgen(result):
            raise StageFailed(self.name, f"`{self._called}` gave a generator; it must return its result")
        if len(self._outputs) == 1:
            result = dict.fromkeys(self._outputs, result)
        elif not isinstance(result, dict) or result.keys() != set(self._outputs):
            wanted = f"a dict of {', '.join(self._outputs)}"
            got = f"one of {', '.join(map(str, result))}" if isinstance(result, dict) else type(result).__name__
            raise StageFailed(self.name, f"`{self._called}` must return {wanted}, not {got}")
        for name, kind in self._outputs.items():
            if not isinstance(result[name], _KINDS.get(kind, object)):
                got = type(result[name]).__name__
                raise StageFailed(self.name, f"`{self._called}` must give `{name}` as {kind}, not as {got}")
        return {name: result[name] for name in self._outputs}

    def _failed(self, error: BaseException) -> StageFailed:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == self._file]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        where = self._file.name if line is None else f"{self._file.name}:{line}"
        return StageFailed.because(self.name, error, where)


async def _whole(value: Any) -> Any:
    """All that comes through an edge, as one value; text without a word is the empty text."""
    if not isinstance(value, Channel):
        return value
    parts = [part async for part in value]
    return "" if not parts and value.segmenter is not None else join(parts)


class Resample:
    """Sound from `source_rate` to `rate`, both in Hz: float32 [samples] in and out, as it comes."""

    def __init__(self, name: str, *, source_rate: float, rate: float) -> None:
        self.name = name
        self._source_hz, self._target_hz = int(source_rate), int(rate)
        self._totals = {"requests": 0.0, "audio_seconds": 0.0}

    def load(self, progress: Progress) -> None:
        """Nothing to load; fails early where PyAV is missing."""
        self._resampler()

    def start(self, flow: Flow, *, audio: Channel[Any]) -> Running:
        port = Port()
        flow.run(lambda: self._serve(audio, port), stage=self.name)
        return Running({"audio": port})

    async def close(self) -> None: ...

    def stats(self) -> dict[str, float]:
        return dict(self._totals)

    async def _serve(self, audio: Channel[Any], port: Port) -> None:
        self._totals["requests"] += 1
        resampler = self._resampler()
        async for samples in audio:
            self._totals["audio_seconds"] += len(samples) / self._source_hz
            await self._give(port, await asyncio.to_thread(resampler.push, samples))
        await self._give(port, resampler.flush())
        port.close()

    async def _give(self, port: Port, samples: Any) -> None:
        if len(samples):
            await port.room()
            port.send(samples)

    def _resampler(self) -> Any:
        from omnic.runtime.audio import Resampler

        return Resampler(self._source_hz, self._target_hz)
