"""Where a generated `server.py` enters the runtime. Light to import, so that a missing library is one line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from omnic import installed

if TYPE_CHECKING:
    from fastapi import FastAPI


def application(build: Path) -> FastAPI:
    """The ASGI app of a build directory; its worker starts and ends with the app's lifespan."""
    from omnic.runtime.server.app import application as made

    return made(build)


def main(build: Path) -> int:
    """`python server.py`: serves until a signal ends it; returns the exit status."""
    try:
        installed.require("serve")
    except installed.Unmet as error:
        print(f"omnic: {error}", file=sys.stderr)
        return 1
    from omnic.runtime.server.main import main as serve

    return serve(build)
