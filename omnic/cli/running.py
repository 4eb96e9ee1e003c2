"""What a running server runs in place of what was planned: `running`, from its metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.error import URLError
from urllib.request import urlopen

from omnic.cli.refusal import Refusal
from omnic.ir.pipeline import Pipeline, get
from omnic.passes.report import aligned
from omnic.target import memory_text

_SECONDS = 5.0
_SAMPLE = re.compile(
    r'^omnic_stage_(?P<name>\w+?)(?:_total)?\{stage="(?P<stage>[^"]*)"\} (?P<value>\S+)$', re.MULTILINE
)
_HEAD = ["stage", "planned", "runs", "graphs", "replays", "without a graph", "memory of graphs"]


def running(url: str, pipeline: Pipeline) -> str:
    """A table of the stages of `pipeline`: which engine each was planned for, and which runs at the server `url`.

    Raises Refusal for a server that cannot be reached, or that serves other stages.
    """
    counts = _counts(url)
    missing = [stage.name for stage in pipeline.stages if stage.name not in counts]
    if missing:
        raise Refusal(
            f"the server at {url} has no stage `{missing[0]}`: it serves another pipeline, or is still loading", 1
        )
    rows = []
    for stage in pipeline.stages:
        planned, mine = get(stage.how, "engine"), counts[stage.name]
        engines = [name.removeprefix("engine_") for name, value in mine.items() if name.startswith("engine_") and value]
        wanted, runs = "eager" if planned is None else str(planned.value), engines[0] if engines else "eager"
        told = runs if runs == wanted else f"{runs} (fell back; the server's log says why)"
        shown = [_count(mine, name) for name in ("graphs", "graph_replays", "uncaptured")]
        held = memory_text(int(mine["graph_bytes"])) if "graph_bytes" in mine else ""
        rows.append([stage.name, wanted, told, *shown, held])
    return "\n".join(("Running", *aligned(_HEAD, rows)))


def _counts(url: str) -> dict[str, dict[str, float]]:
    """What each stage has counted, by name."""
    try:
        with urlopen(f"{url.rstrip('/')}/metrics", timeout=_SECONDS) as answer:  # the user's own server
            text = answer.read().decode()
    except (URLError, OSError, ValueError) as error:
        raise Refusal(f"no server answers at {url}: {getattr(error, 'reason', error)}", 1) from None
    found: dict[str, dict[str, float]] = {}
    for sample in _SAMPLE.finditer(text):
        found.setdefault(sample["stage"], {})[sample["name"]] = float(sample["value"])
    if not found:
        raise Refusal(f"{url} has no metrics of omnic's stages: it is another server, or is still loading", 1)
    return found


def _count(counts: Mapping[str, float], name: str) -> str:
    return f"{counts[name]:,.0f}" if name in counts else ""
