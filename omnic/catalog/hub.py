"""Repositories in the local cache of the Hugging Face hub. Nothing here uses a network."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from omnic.catalog.part import CatalogError

_COMMIT = re.compile(r"[0-9a-f]{40}")


def cache(env: Mapping[str, str] = os.environ) -> Path:
    """The directory that holds the cache, by the variables `huggingface_hub` reads."""
    if named := env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE"):
        return Path(named).expanduser()
    base = env.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(env.get("HF_HOME") or f"{base}/huggingface").expanduser() / "hub"


def offline(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the user asked for no downloads."""
    return any(env.get(n, "").upper() in ("1", "ON", "YES", "TRUE") for n in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def snapshot(repo: str, revision: str | None, env: Mapping[str, str] = os.environ) -> Path | None:
    """The cached snapshot of `repo` at `revision` (a branch, a tag or a commit; `main` if None), or None."""
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", repo):
        raise CatalogError(f"`{repo}` is not a repository name", help='write `hf("org/repo")`', id="model-not-found")
    folder = cache(env) / ("models--" + repo.replace("/", "--"))
    wanted = revision or "main"
    if _COMMIT.fullmatch(wanted):
        commit = wanted
    else:
        try:
            commit = (folder / "refs" / wanted).read_text().strip()
        except (OSError, ValueError):
            return None
    found = folder / "snapshots" / commit
    return found if _COMMIT.fullmatch(commit) and found.is_dir() else None


def not_cached(repo: str, revision: str | None, env: Mapping[str, str] = os.environ) -> CatalogError:
    """What to say of a repository that is neither cached nor shipped as a description."""
    at = f" at revision `{revision}`" if revision else ""
    pin = f" --revision {revision}" if revision else ""
    if offline(env):
        how = f"HF_HUB_OFFLINE is set: copy the repository into {cache(env)}, or name a directory with `path(…)`"
    else:
        how = f"fetch it with `hf download {repo}{pin}`, or name a directory with `path(…)`"
    return CatalogError(f"`{repo}`{at} is not in the hub cache {cache(env)}", help=how, id="model-not-found")
