"""The seed of a request, which all stages of a pipeline draw with."""

from __future__ import annotations

from collections.abc import Iterable

from omnic.diagnostics import Label, Sink
from omnic.expr import Expr, format_value
from omnic.ir.pipeline import Open, Setting, Stage
from omnic.source import Span


def one_seed(stages: Iterable[Stage], sink: Sink) -> None:
    """Stages draw with the seed of the request, so those that set one set the same."""
    first: tuple[Setting, str] | None = None
    for stage in stages:
        for key, setting in stage.keys:
            if key != "seed" or setting.value is None or isinstance(setting.value, Open):
                continue
            shown = str(setting.value) if isinstance(setting.value, Expr) else format_value(setting.value)
            if first is None:
                first = setting, shown
            elif shown != first[1]:
                secondary = [Label(first[0].span, f"here it is {first[1]}")] if isinstance(first[0].span, Span) else []
                message = f"all stages draw with one seed: `{stage.name}` cannot have one of its own"
                sink.error("one-seed", message, setting.span, f"here it is {shown}", secondary=secondary)
