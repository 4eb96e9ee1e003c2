"""What is counted agrees with what was asked, and its labels stay few."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Make
from tests.server.running import Server, ask

PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], float]:
    """The metrics after a dozen requests of every kind."""
    from tests.server.conftest import make

    with Server(make(tmp_path_factory.mktemp("counted"), step_seconds=0.002)) as server:
        server.ready()
        for stream in (False, True):
            assert server.chat("one two", stream=stream).status_code == 200
            assert server.chat("one two", stream=stream, modalities=["text", "audio"]).status_code == 200
        assert len(server.chat("one", n=2).json()["choices"]) == 2
        for fields in ({}, {"stream_format": "audio"}, {"stream_format": "sse"}):
            assert server.speech("hello", **fields).status_code == 200
        assert server.chat("one", max_tokens=0).status_code == 400
        assert server.chat("!request").status_code == 400
        assert server.chat("!raise a b c d").status_code == 500
        assert server.post("/v1/audio/speech", {"input": "x", "model": "nobody"}).status_code == 404
        with server.streaming(PATH, ask("!raise a b c d", stream=True)) as response:
            response.read()
        return server.metrics()


def test_requests_by_endpoint_and_outcome(counted: dict[tuple[str, ...], float]) -> None:
    def outcomes(endpoint: str) -> dict[str, float]:
        return {k[2]: v for k, v in counted.items() if k[0] == "omnic_requests_total" and k[1] == endpoint and v}

    assert outcomes("chat.completions") == {"completed": 5, "invalid": 2, "failed": 2}
    assert outcomes("audio.speech") == {"completed": 3, "invalid": 1}


def test_every_request_has_a_duration(counted: dict[tuple[str, ...], float]) -> None:
    assert counted[("omnic_request_seconds_count", "chat.completions")] == 9
    assert counted[("omnic_request_seconds_count", "audio.speech")] == 4


def test_stage_counts_add_up_to_the_flows_that_ran(counted: dict[tuple[str, ...], float]) -> None:
    """Five completed chats of which one has two answers, two that failed, one that `think` refused; two spoke."""
    assert counted[("omnic_stage_requests_total", "think")] == 4 + 2 + 2 + 1
    assert counted[("omnic_stage_requests_total", "speak")] == 2 + 3
    assert counted[("omnic_queue_seconds_count", "chat.completions")] == 9
    assert counted[("omnic_queue_seconds_count", "audio.speech")] == 3


def test_stage_time_is_within_the_time_of_the_requests(counted: dict[tuple[str, ...], float]) -> None:
    whole = sum(counted[("omnic_request_seconds_sum", e)] for e in ("chat.completions", "audio.speech"))
    busy = {s: counted[("omnic_stage_busy_seconds_total", s)] for s in ("think", "speak")}
    assert all(0 < seconds <= whole for seconds in busy.values())


def test_tokens_and_sound(counted: dict[tuple[str, ...], float]) -> None:
    assert counted[("omnic_tokens_total", "completion")] == 4 * 2 + 2 * 1
    assert counted[("omnic_tokens_total", "prompt")] == 4 * 2 + 2 * 1
    assert counted[("omnic_audio_seconds_total",)] == pytest.approx((2 * len("one two") + 3 * len("hello")) / 100)


def test_first_text_first_sound_and_pace(counted: dict[tuple[str, ...], float]) -> None:
    assert counted[("omnic_first_text_seconds_count", "chat.completions")] == 5 + 2
    assert counted[("omnic_first_audio_seconds_count", "chat.completions")] == 2
    assert counted[("omnic_realtime_factor_count", "audio.speech")] == 3


def test_nothing_is_left_running(counted: dict[tuple[str, ...], float]) -> None:
    for name in ("omnic_requests_running", "omnic_requests_waiting"):
        assert {v for k, v in counted.items() if k[0] == name} == {0}
    assert counted[("omnic_ready",)] == 1


def test_labels_do_not_grow_with_what_clients_send(build: Make) -> None:
    def series(server: Server) -> set[tuple[str, ...]]:
        return {key for key in server.metrics() if not key[0].endswith("_created")}

    with Server(build()) as server:
        server.ready()
        server.chat("warm", modalities=["text", "audio"])
        server.speech("warm")
        before = series(server)
        for n in range(20):
            server.client.post(f"{server.url}/v1/{n}", json={})
            server.chat("x", model=f"model-{n}")
            server.client.get(f"{server.url}/v1/models/{n}", headers={"x-request-id": f"id-{n}"})
        assert series(server) == before


def test_the_text_is_prometheus_s(server: Server) -> None:
    response: httpx.Response = server.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(response.text)}
    assert {"omnic_requests", "omnic_queue_seconds", "omnic_stage_requests", "omnic_worker_restarts"} <= names
