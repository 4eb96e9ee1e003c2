"""`/v1/videos`: a video as a job that is asked after, fetched and deleted, or made while the client waits."""

from __future__ import annotations

import io
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response

from omnic.contract.endpoints import Endpoint
from omnic.contract.validate import Accepted, Violation
from omnic.runtime import video_files
from omnic.runtime.flow import Finished, Piece
from omnic.runtime.pipe import Pipe
from omnic.runtime.server.filming import Filming
from omnic.runtime.server.jobs import Job
from omnic.runtime.server.metrics import Measure
from omnic.runtime.server.problems import Problem
from omnic.runtime.server.runner import Runner
from omnic.runtime.server.service import Event, Service

POLL_HEADER = "openai-poll-after-ms"  # heeded by OpenAI's client
_POLL_MS = "500"
_MOST = 100  # jobs in one list
_LIMIT = re.compile("[0-9]{1,3}")


class Videos:
    """What clients ask of the jobs of a server."""

    def __init__(self, service: Service, endpoint: Endpoint, runner: Runner) -> None:
        self._service, self._endpoint, self._runner = service, endpoint, runner
        self._output = dict(endpoint.outputs)["video"]
        self._fps = float(service.content.outputs[self._output].rate_hz or video_files.FPS)

    async def begin(self, accepted: Accepted, seed: int | None) -> dict[str, Any]:
        """Puts a job in line; the answer describes it. Raises Problem, RequestError."""
        video_files.known()
        if accepted.options["stream"]:
            raise Violation("`stream` is for /v1/videos/sync: a job is fetched when it is done", "stream")
        prompt = next(f for f in self._endpoint.fields if f.required and f.type.kind == "text")
        frames = self._value(accepted, "num_frames")
        job = Job(
            id=f"video_{secrets.token_hex(12)}",
            build=self._runner.store.build,
            model=self._service.model,
            prompt=accepted.arguments[prompt.argument],
            method=accepted.slice.method,
            seed=seed,
            size=str(self._value(accepted, "size") or "auto"),
            seconds=f"{frames / self._fps:g}" if frames else "",
        )
        return _shown(await self._runner.add(job, accepted.arguments))

    def _value(self, accepted: Accepted, name: str) -> Any:
        field = self._endpoint.field(name)
        return accepted.arguments.get(field.argument, field.default) if field else None

    # --- routes ----------------------------------------------------------------------------------------------------

    async def list(self, request: Request) -> Response:
        query = request.query_params
        limit, after, order = query.get("limit", "20"), query.get("after"), query.get("order", "desc")
        if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= _MOST:
            raise Violation(f"`limit` must be in 1..{_MOST}, not {limit[:60]}", "limit")
        if order not in ("asc", "desc"):
            raise Violation(f"`order` must be asc or desc, not {order[:60]}", "order")
        behind = await self._runner.do(self._runner.store.get, after) if after else None
        if after and behind is None:
            raise Violation(f"`after`: there is no video `{after[:60]}`", "after")
        number = behind.number if behind else None
        jobs = await self._runner.do(self._runner.store.page, int(limit) + 1, number, order == "desc")
        page = [_shown(job) for job in jobs[: int(limit)]]
        ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
        return JSONResponse({"object": "list", "data": page, "has_more": len(jobs) > int(limit)} | ends)

    async def one(self, request: Request) -> Response:
        job = await self._job(request)
        busy = job.status in ("queued", "in_progress")
        return JSONResponse(_shown(job), headers={POLL_HEADER: _POLL_MS} if busy else {})

    async def delete(self, request: Request) -> Response:
        job = await self._job(request)
        await self._runner.delete(job.id)
        return JSONResponse({"id": job.id, "object": "video.deleted", "deleted": True})

    async def content(self, request: Request) -> Response:
        job = await self._job(request)
        variant = request.query_params.get("variant", "video")
        if variant != "video":
            raise Violation(f"`variant` must be video, not {variant[:60]}", "variant", "unsupported_value")
        if job.status == "failed":
            raise Problem(400, f"`{job.id}` failed: {job.message}", "video_failed")
        if job.status != "completed":
            raise Problem(400, f"`{job.id}` is {job.status}: ask again when it is completed", "video_not_ready")
        file = self._runner.store.file(job.id)
        if not file.exists():
            raise Problem(404, f"the file of `{job.id}` is gone", "not_found")
        return FileResponse(file, media_type=video_files.CONTENT_TYPE, filename=file.name)

    async def _job(self, request: Request) -> Job:
        id = request.path_params["id"]
        job = await self._runner.do(self._runner.store.get, id)
        if job is None:
            raise Problem(404, f"there is no video `{id[:64]}`", "not_found")
        return job


class Sync:
    """One accepted request for a video that the client waits for."""

    def __init__(self, service: Service, accepted: Accepted, measure: Measure) -> None:
        self._service, self._accepted, self._measure = service, accepted, measure

    async def events(self, seed: int | None) -> AsyncGenerator[Event, None]:
        video_files.known()
        arguments = self._accepted.arguments | ({} if seed is None else {"seed": seed})
        run = self._service.run("videos", self._accepted.slice.method, arguments, self._measure)
        async with aclosing(run) as events:
            async for each in events:
                if isinstance(each, Finished):
                    self._measure.finished(each)
                yield each

    async def whole(self, seed: int | None) -> bytes:
        """The video as one file."""
        file = io.BytesIO()
        film = Filming(self._service, file, self._measure)
        try:
            async with aclosing(self.events(seed)) as events:
                async for each in events:
                    if isinstance(each, Piece):
                        await film.take(each)
            await film.close()
        finally:
            await film.drop()
        return file.getvalue()

    async def stream(self, events: AsyncGenerator[Event, None], first: Event) -> AsyncGenerator[bytes, None]:
        """The same as a file in fragments, each sent as it is made."""
        out = Pipe()
        film = Filming(self._service, out, self._measure, streamed=True)
        item: Event | None = first
        try:
            while item is not None:
                if isinstance(item, Piece):
                    await film.take(item)
                    if data := out.take():
                        yield data
                item = await anext(events, None)
            await film.close()
            yield out.take()
        finally:
            await film.drop()


def _shown(job: Job) -> dict[str, Any]:
    """A job in the form of the API."""
    ended = job.status in ("completed", "failed")
    return {
        "id": job.id,
        "object": "video",
        "model": job.model,
        "status": job.status,
        "progress": job.progress,
        "created_at": int(job.created),
        "completed_at": int(job.ended) if job.ended and job.status == "completed" else None,
        "expires_at": int(job.expires) if job.expires and ended else None,
        "prompt": job.prompt,
        "seconds": job.seconds,
        "size": job.size,
        "seed": job.seed,
        "remixed_from_video_id": None,
        "error": {"code": job.code, "message": job.message} if job.status == "failed" else None,
    }
