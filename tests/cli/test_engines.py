"""`omnic build` of a pipeline that runs by engines made ahead, where they cannot be made."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Omnic

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


def test_the_rest_can_be_built(tmp_path: Path, omnic: Omnic) -> None:
    file, out = tmp_path / "small.omni", tmp_path / "out"
    file.write_text(SMALL)
    done = omnic("build", file, "--target", "gpu:h200", "-o", out, "--no-engines")
    assert done.status == 0
    assert done.err == "omnic: --no-engines: `paint` cannot run until it is built without\n"
    assert (out / "pipeline.py").exists()
