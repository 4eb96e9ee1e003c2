"""`omnic build` of a pipeline that runs by engines made ahead, where they cannot be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omnic.runtime.engines import tensorrt
from omnic.runtime.engines.fake import Reference
from tests.cli.conftest import Omnic
from tests.test_layering import without

SMALL = """\
pipeline small {
  model m = random("flux", seed = 3)

  input  prompt: text
  output image: image

  stage encode = m.text_encoder
  stage draw   = m.denoiser { size = 32x48, steps = 2 }
  stage paint  = m.vae_decode { engine = tensorrt }

  prompt        -> encode.text
  encode.embeds -> draw.condition
  draw.latents  -> paint.latents
  paint.image   -> image
}
"""


def test_what_is_missing_is_one_line(tmp_path: Path, omnic: Omnic) -> None:
    file, out = tmp_path / "small.omni", tmp_path / "out"
    file.write_text(SMALL)
    done = omnic("build", file, "--target", "gpu:h200", "-o", out)
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("omnic: `paint`: ")
    assert "TensorRT" in done.err
    assert "sm_90" in done.err
    assert done.err.endswith("; `--no-engines` builds the rest\n")
    assert not out.exists()


def test_without_torch_it_is_one_line_too(tmp_path: Path) -> None:
    (tmp_path / "small.omni").write_text(SMALL)
    file, out = str(tmp_path / "small.omni"), str(tmp_path / "out")
    command = [sys.executable, "-m", "omnic", "build", file, "--target", "gpu:l4", "-o", out]
    environment = without(("torch",), tmp_path / "absent")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("omnic: `paint`: making its engine needs omnic[serve,tensorrt]: torch is absent")


def test_a_cache_that_cannot_be_written_is_one_line(
    tmp_path: Path, omnic: Omnic, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file, not a directory")
    monkeypatch.setenv("OMNIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tensorrt, "builder_for", lambda architecture: Reference(architecture=architecture))
    (tmp_path / "small.omni").write_text(SMALL)
    done = omnic("build", tmp_path / "small.omni", "--target", "gpu:l4", "-o", tmp_path / "out")
    assert (done.status, done.out, done.err.count("\n")) == (1, "", 1)
    assert "Not a directory" in done.err or "File exists" in done.err


def test_the_rest_can_be_built(tmp_path: Path, omnic: Omnic) -> None:
    file, out = tmp_path / "small.omni", tmp_path / "out"
    file.write_text(SMALL)
    done = omnic("build", file, "--target", "gpu:h200", "-o", out, "--no-engines")
    assert done.status == 0
    assert done.err == "omnic: --no-engines: `paint` cannot run until it is built without\n"
    assert (out / "pipeline.py").exists()
