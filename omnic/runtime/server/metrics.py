"""What a server counts, for Prometheus. Labels take their values from the build alone, so they stay few."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from omnic.runtime.flow import Finished
from omnic.runtime.workers import GAUGES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OUTCOMES = ("completed", "failed", "cancelled", "invalid", "rejected")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_FACTORS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 5)


class Metrics:
    """The registry of one app, and what goes into it."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self.registry = r = CollectorRegistry()
        self.stages: dict[str, dict[str, float]] = {}  # what the stages have counted, as last heard
        self.restarts = 0  # of workers
        self.requests = Counter("omnic_requests", "Requests by how they ended", ("endpoint", "outcome"), registry=r)
        self.running = Gauge("omnic_requests_running", "Requests at work", ("endpoint",), registry=r)
        self.waiting = Gauge("omnic_requests_waiting", "Requests in line", ("endpoint",), registry=r)
        self.queue_seconds = _histogram("queue_seconds", "Time in line", r)
        self.seconds = _histogram("request_seconds", "Time from request to end of answer", r)
        self.first_text_seconds = _histogram("first_text_seconds", "Time from request to first text", r)
        self.first_audio_seconds = _histogram("first_audio_seconds", "Time from request to first sound", r)
        self.first_image_seconds = _histogram("first_image_seconds", "Time from request to first picture", r)
        self.first_video_seconds = _histogram("first_video_seconds", "Time from request to first frames", r)
        self.realtime_factor = Histogram(
            "omnic_realtime_factor", "Time taken for a second of sound", ("endpoint",), buckets=_FACTORS, registry=r
        )
        self.tokens = Counter("omnic_tokens", "Tokens read and written", ("kind",), registry=r)
        self.audio_seconds = Counter("omnic_audio_seconds", "Seconds of sound made", registry=r)
        self.pictures = Counter("omnic_pictures", "Pictures made", ("endpoint",), registry=r)
        self.frames = Counter("omnic_frames", "Frames of videos made", registry=r)
        self.steps = Counter("omnic_steps", "Steps that requests were taken through", ("stage",), registry=r)
        self.step_seconds = _histogram(
            "step_seconds", "Work of a step for one request, its share of a batch", r, "stage"
        )
        self.stage_seconds = _histogram("stage_request_seconds", "Time of a request in a stage", r, "stage")
        self.ready = Gauge("omnic_ready", "1 if requests can be served", registry=r)
        for endpoint in endpoints:
            for outcome in OUTCOMES:
                self.requests.labels(endpoint, outcome)
        r.register(_Workers(self))

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _histogram(name: str, doc: str, registry: CollectorRegistry, label: str = "endpoint") -> Histogram:
    return Histogram(f"omnic_{name}", doc, (label,), buckets=_SECONDS, registry=registry)


class _Workers:
    """What is counted on the other side of the socket: `omnic_stage_…`, by the stages themselves, and restarts."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("omnic_worker_restarts", "Workers started again", self._metrics.restarts)
        names = sorted({name for counts in self._metrics.stages.values() for name in counts})
        for name in names:
            family = GaugeMetricFamily if name in GAUGES else CounterMetricFamily
            metric = family(f"omnic_stage_{name}", f"`{name}` as each stage counts it", labels=("stage",))
            for stage, counts in self._metrics.stages.items():
                if name in counts:
                    metric.add_metric((stage,), counts[name])
            yield metric


class Measure:
    """One request as the metrics see it: it begins when made, and ends once."""

    def __init__(self, metrics: Metrics, endpoint: str) -> None:
        self._metrics, self._endpoint = metrics, endpoint
        self._began = time.monotonic()
        self._seen: set[str] = set()
        self._audio_seconds = 0.0
        self._over = False

    def entered(self, seconds: float) -> None:
        """It was let in after so long in line."""
        self._metrics.queue_seconds.labels(self._endpoint).observe(seconds)

    def piece(self, role: str, audio_seconds: float = 0.0) -> None:
        """A piece of text, audio, image or video came."""
        self._audio_seconds += audio_seconds
        if role not in self._seen:
            self._seen.add(role)
            first: Histogram = getattr(self._metrics, f"first_{role}_seconds")
            first.labels(self._endpoint).observe(time.monotonic() - self._began)

    def finished(self, finished: Finished) -> None:
        """A flow of the request completed."""
        self._metrics.tokens.labels("prompt").inc(finished.prompt_tokens)
        self._metrics.tokens.labels("completion").inc(finished.completion_tokens)
        for stage, measured in finished.stages.items():
            if (seconds := measured.get("seconds")) is not None:
                self._metrics.stage_seconds.labels(stage).observe(seconds)
            if steps := measured.get("steps"):
                self._metrics.steps.labels(stage).inc(steps)
                self._metrics.step_seconds.labels(stage).observe(measured.get("busy_seconds", 0.0) / steps)

    def pictures(self, count: int) -> None:
        """So many pictures were encoded for the client."""
        self._metrics.pictures.labels(self._endpoint).inc(count)

    def frames(self, count: int) -> None:
        """So many frames were encoded."""
        self._metrics.frames.inc(count)

    def leave(self) -> None:
        """Its end is counted elsewhere."""
        self._over = True

    def end(self, outcome: str) -> None:
        """It is over; what is said of it afterwards does not count."""
        if self._over:
            return
        self._over = True
        seconds = time.monotonic() - self._began
        self._metrics.requests.labels(self._endpoint, outcome).inc()
        self._metrics.seconds.labels(self._endpoint).observe(seconds)
        self._metrics.audio_seconds.inc(self._audio_seconds)
        if outcome == "completed" and self._audio_seconds:
            self._metrics.realtime_factor.labels(self._endpoint).observe(seconds / self._audio_seconds)
