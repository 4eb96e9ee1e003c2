"""Before any test imports torch: its threads then sleep while they wait, as in use. Before any imports a kernel: where
there is no GPU, Triton's interpreter runs it."""

import os
from pathlib import Path

import omnic.runtime  # noqa: F401 - for what importing it does

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
