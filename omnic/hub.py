"""The local cache of the Hugging Face hub, by the rules of its own library: where it lies, and what is in it.

The compiler and the runtime both look here. Nothing here uses a network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_COMMIT = re.compile(r"[0-9a-f]{40}")
_YES = ("1", "ON", "YES", "TRUE")


def cache(env: Mapping[str, str] = os.environ) -> Path:
    """The directory that holds the cache, by the variables `huggingface_hub` reads."""
    if named := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    base = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(env.get("HF_HOME") or f"{base}/huggingface").expanduser() / "hub"


def offline(env: Mapping[str, str] = os.environ) -> str | None:
    """The variable that asks for no downloads, if one does."""
    return next((n for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") if env.get(n, "").upper() in _YES), None)


def snapshot(repository: str, revision: str | None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The cached snapshot of a repository at a branch, a tag or a commit (`main` if None), or None."""
    folder = cache(env) / ("models--" + repository.replace("/", "--"))
    commit = revision or "main"
    if not _COMMIT.fullmatch(commit):
        try:
            commit = (folder / "refs" / commit).read_text().strip()
        except (OSError, ValueError):
            return None
    found = folder / "snapshots" / commit
    return found if _COMMIT.fullmatch(commit) and found.is_dir() else None


def fetch(repository: str, revision: str | None, env: Mapping[str, str] = os.environ) -> str:
    """How to get a repository into the cache."""
    if variable := offline(env):
        return f"{variable} is set: copy the repository into {cache(env)}"
    pin = f" --revision {revision}" if revision not in (None, "main") else ""
    return f"fetch it with `hf download {repository}{pin}`"
