"""Fields of requests that set keys of several stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from omnic.contract.domains import Choices, Domain, Range, within
from omnic.diagnostics import Sink
from omnic.ir.pipeline import Open, Setting, Stage


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
