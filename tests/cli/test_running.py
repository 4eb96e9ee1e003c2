"""`omnic plan --running`: what a server runs in place of what was planned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from omnic.runtime.server.metrics import Metrics
from tests.cli.conftest import Omnic

SOURCE = """
pipeline p {
  model m = random("qwen_image", like = "Qwen/Qwen-Image")
  input  prompt: text
  output image: image
  stage read  = m.text_encoder
  stage draw  = m.denoiser
  stage paint = m.vae_decode
  prompt       -> read.text
  read.embeds  -> draw.condition
  draw.latents -> paint.latents
  paint.image  -> image
  serve images.generations
}
"""
STAGES: dict[str, dict[str, float]] = {
    "read": {"requests": 3.0},
    "draw": {"engine_cuda_graph": 1.0, "graphs": 24.0, "graph_replays": 1200.0, "uncaptured": 7.0, "graph_bytes": 3e9},
    "paint": {"requests": 3.0},
}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.omni").write_text(SOURCE)
    return "p.omni"


class Answers(BaseHTTPRequestHandler):
    """`/metrics` as omnic's server writes it, of the stages that the test sets."""

    stages: ClassVar[dict[str, dict[str, float]]] = {}

    def do_GET(self) -> None:
        metrics = Metrics(("images.generations",))
        metrics.stages = self.stages
        self.send_response(200)
        self.end_headers()
        self.wfile.write(metrics.text())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    Answers.stages = STAGES
    with HTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


def shown(omnic: Omnic, source: str, server: str) -> dict[str, list[str]]:
    done = omnic("plan", source, "--target", "gpu:h200", "--running", server)
    assert done.status == 0, done.err
    lines = done.out.partition("\nRunning\n")[2].splitlines()
    return {words[0]: words[1:] for line in lines[2:] if (words := line.split())}


def test_each_stage_with_what_it_runs(source: str, server: str, omnic: Omnic) -> None:
    rows = shown(omnic, source, server)
    assert rows["read"] == ["eager", "eager"]
    assert rows["draw"] == ["cuda_graph", "cuda_graph", "24", "1,200", "7", "2.8", "GiB"]


def test_what_fell_back_is_told(source: str, server: str, omnic: Omnic) -> None:
    Answers.stages = STAGES | {"draw": {"engine_eager": 1.0}}
    assert shown(omnic, source, server)["draw"][:4] == ["cuda_graph", "eager", "(fell", "back;"]


def test_a_server_of_another_pipeline_is_refused(source: str, server: str, omnic: Omnic) -> None:
    Answers.stages = {"think": {"requests": 1.0}}
    done = omnic("plan", source, "--target", "gpu:h200", "--running", server)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "has no stage `read`" in done.err


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "nonsense"])
def test_no_server_is_refused_in_a_line(source: str, url: str, omnic: Omnic) -> None:
    done = omnic("plan", source, "--target", "gpu:h200", "--running", url)
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert f"no server answers at {url}" in done.err


def test_it_is_a_table(source: str, omnic: Omnic) -> None:
    assert "does not go with --json" in omnic("plan", source, "--running", "http://127.0.0.1:9", "--json").err
