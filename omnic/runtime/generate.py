"""The generate stage: a conversation in, text and tokens out as they are drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from omnic.runtime import families
from omnic.runtime.answer import Draw, Request
from omnic.runtime.convert import directory
from omnic.runtime.device import Device
from omnic.runtime.edges import Channel, Port
from omnic.runtime.engine import Engine
from omnic.runtime.errors import Elsewhere, RequestError
from omnic.runtime.flow import Flow
from omnic.runtime.forward import whole
from omnic.runtime.generate_steps import Hook, PlainSteps, Steps
from omnic.runtime.home import Home
from omnic.runtime.language import LanguageModel
from omnic.runtime.sampling import Rows, Sample
from omnic.runtime.stage import Progress, Running
from omnic.runtime.tensors import Loaded
from omnic.runtime.text import Codec, Detokeniser, Stops, stop_strings
from omnic.runtime.weights import Checkpoint

__all__ = ["Generate", "Rows"]


Messages: TypeAlias = Sequence[Mapping[str, Any]]


class Generate:
    """A language model that answers conversations, many at once. Satisfies `stage.Stage`.

    `slots` answers run together, each with room for `context` tokens, of which messages may fill `prompt`. Up to
    `prefill_chunk` prompt tokens run in one step. In float32 prompts are always cut at the same places, so that
    neighbours change nothing; otherwise the cuts follow the measured pace, so that answers under way hardly wait.
    `hook` is for tests (see `engine.Hook`).
    """

    def __init__(
        self, name: str, checkpoint: Checkpoint, device: Device, *, dtype: str, slots: int, context: int, prompt: int,
        prefill_chunk: int, sample: Sample, hook: Hook | None = None,
    ) -> None:  # fmt: skip
        self.name, self.checkpoint, self._device = name, checkpoint, device
        self._dtype, self._slots, self._context, self._prompt = dtype, slots, context, prompt
        self._prefill_chunk, self._sample, self._hook = prefill_chunk, sample, hook
        self._engine: Engine | None = None
        self._model: LanguageModel  # once loaded, on a CPU

    def load(self, progress: Progress) -> None:
        """Raises Missing or Damaged for a checkpoint that cannot be used."""

        def loaded(done: int, total: int) -> None:
            progress(self.name, done, total)

        engine = Engine(
            self.name, lambda: self._steps(loaded), self._device, slots=self._slots,
            prefill_chunk=self._prefill_chunk, steady=self._dtype == "float32", hook=self._hook,
        )  # fmt: skip
        engine.start()
        self._engine = engine
        stop_ids = self.checkpoint.model.config.get("eos_token_id") or ()
        if self.checkpoint.root is None:
            self.codec = Codec.made_up(engine.steps.vocabulary, stop_ids)
        else:
            self.codec = Codec.load(directory(self.checkpoint, self._dtype, loaded), stop_ids)

    def _steps(self, loaded: Loaded) -> Steps:
        """Loads the model, on the device's thread."""
        family = families.load(self.checkpoint.model.family)
        device = self._device.torch
        if device.type == "cpu":
            self._model = family.load(self.checkpoint, self._dtype, loaded)
            self._model.allocate(self._slots, self._context)
            return PlainSteps(self._model, self._sample)
        if not hasattr(family, "load_paged"):
            raise Elsewhere(f"models of `{self.checkpoint.model.family}` decode on a CPU alone: plan it for one")
        from omnic.runtime.generate_gpu import GpuSteps  # its kernels need Triton

        home = Home(self._dtype, device)
        return GpuSteps(family.load_paged(self.checkpoint, home, self._slots, self._context, loaded), self._sample)

    @property
    def model(self) -> LanguageModel:
        """The loaded model of a CPU, which the device's thread alone may run while it has requests."""
        return self._model

    def start(
        self,
        flow: Flow,
        *,
        messages: Messages | Channel[Messages],
        max_tokens: int,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        repetition_penalty: float | None = None,
        stop: str | Sequence[str] = (),
        stop_token_ids: Sequence[int] = (),
    ) -> Running:
        """Answers `messages`, which a request or another stage gives: text of `role` system, user or assistant and
        `content`, the last not blank.

        Ports: `text` (str deltas) and `tokens` (ids, the one that ended the answer included). Ends with finish
        reason `stop` at an end token of the model, at one of `stop_token_ids`, or before one of the `stop` strings;
        with `length` after `max_tokens`. Usage counts every token that was drawn. Sampling settings are None where
        the sample function has them pinned.
        """
        engine = self._engine
        assert engine is not None, "started before it was loaded"
        text, tokens = Port(engine.wake), Port(engine.wake)

        async def work() -> None:
            stops = Stops(stop_strings(stop))
            prompt = await asyncio.to_thread(self.codec.prompt, await whole(messages) or (), self._prompt)
            self._require_room(len(prompt), max_tokens)
            loop = asyncio.get_running_loop()
            request = Request(
                prompt=tuple(prompt),
                max_tokens=max_tokens,
                draw=Draw(flow.seed, temperature, top_k, top_p, repetition_penalty),
                stop_ids=self.codec.stop_ids | set(stop_token_ids),
                stops=stops,
                detokeniser=Detokeniser(self.codec.decode),
                text=text,
                tokens=tokens,
                loop=loop,
                done=loop.create_future(),
            )
            engine.submit(request)
            try:
                flow.report.finish_reason = await request.done
            finally:
                if not request.done.done() or request.done.cancelled():
                    engine.cancel(request)
            flow.report.prompt_tokens = len(prompt)
            flow.report.completion_tokens = len(request.answer)
            flow.report.stages[self.name] = {
                "queue_seconds": request.began_at - request.queued_at,
                "first_token_seconds": request.first_token_at - request.queued_at,
                "seconds": request.ended_at - request.queued_at,
            }

        flow.run(work, stage=self.name)
        return Running({"text": text, "tokens": tokens})

    def _require_room(self, prompt: int, max_tokens: int) -> None:
        if prompt + max_tokens > self._context:
            raise RequestError(
                f"the messages are {prompt} tokens long and `max_tokens` is {max_tokens}: together"
                f" {prompt + max_tokens}, and the context holds {self._context}",
                "messages",
                code="context_length_exceeded",
            )

    async def close(self) -> None:
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    def stats(self) -> dict[str, float]:
        return self._engine.stats() if self._engine is not None else {}
