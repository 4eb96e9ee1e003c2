"""What the stages of a pipeline share of a request: its seed, and fields that several of them read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnic.contract.domains import Choices, Domain, Range, within
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


def alike(stages: Iterable[Stage], sink: Sink) -> list[Stage]:
    """The stages with the domains of keys that one field of a request sets made the same: what all of them take."""
    stages = list(stages)
    first: dict[str, tuple[str, Open]] = {}
    domains: dict[str, Domain | None] = {}
    for stage in stages:
        for key, setting in stage.keys:
            if not isinstance(own := setting.value, Open):
                continue
            other, knob = first.setdefault(own.field, (f"{stage.name}.{key}", own))
            domains.setdefault(own.field, own.domain)
            if own.type != knob.type:
                _clash(stage, key, str(own.type), other, str(knob.type), sink)
            elif (common := _common(domains[own.field], own.domain)) is _NOTHING:
                _clash(stage, key, str(own.domain), other, str(domains[own.field]), sink)
            else:
                domains[own.field] = common
    return [replace(s, keys=tuple((key, _narrowed(setting, domains)) for key, setting in s.keys)) for s in stages]


_NOTHING = Choices(())


def _common(a: Domain | None, b: Domain | None) -> Domain | None:
    """The values in both domains; `_NOTHING` where there are none, or none that a domain could say."""
    if a is None or b is None:
        return a or b
    if within(a, b):
        return a
    if within(b, a):
        return b
    match a, b:
        case Range(low=int() | float(), step=None), Range(low=int() | float(), step=None):
            low, high = max(a.low, b.low), min(a.high, b.high)  # type: ignore[type-var]  # ranges of numbers
            return Range(low, high) if low <= high else _NOTHING  # type: ignore[operator]  # as above
    return _NOTHING


def _clash(stage: Stage, key: str, takes: str, other: str, others: str, sink: Sink) -> None:
    message = f"`{stage.name}.{key}` and `{other}` are set by one field of requests, and take different values"
    help_ = [f"set `{key}` in one of the stages, or by a param"]
    sink.error("field-clash", message, stage.span, f"it takes {takes}; the other {others}", help=help_)


def _narrowed(setting: Setting, domains: dict[str, Domain | None]) -> Setting:
    match setting.value:
        case Open(field=field, domain=domain) as value if domain != domains[field]:
            return replace(setting, value=replace(value, domain=domains[field]))
    return setting
