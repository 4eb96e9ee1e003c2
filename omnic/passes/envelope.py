"""What requests may ask for together: `corners`, the domains of params as far as rules let them go at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from omnic.contract.domains import Choices, Domain, Range
from omnic.expr import Expr, ExprError, evaluate, names
from omnic.ir.pipeline import Pipeline

Domains = Mapping[str, "Domain | None"]
_MOST = 256  # combinations that are looked at


def corners(pipeline: Pipeline) -> tuple[Domains, ...]:
    """Domains by param. Where `require` rules bound several params together (`frames * size.area <= …`), one for each
    combination of the listed values that such params have, with the range of the one param that has a range cut where
    the rules end. What grows with each param is then largest at the end of one of them.

    Rules over inputs, over several ranges, or over too many combinations narrow nothing.
    """
    domains: Domains = {param.name: param.domain for param in pipeline.params}
    known = {name: domain for name, domain in domains.items() if domain is not None}
    rules = [rule for rule in pipeline.requires if _of(rule) <= known.keys()]
    bound = set().union(*map(_of, rules)) if rules else set()
    listed = {name: d.values for name, d in known.items() if name in bound and isinstance(d, Choices)}
    ranges = [name for name in bound if isinstance(known[name], Range)]
    combinations = 1
    for values in listed.values():
        combinations *= len(values)
    if not bound or len(ranges) > 1 or combinations > _MOST:
        return (domains,)
    found = []
    for values in product(*listed.values()):
        fixed = dict(zip(listed, values, strict=True))
        if (cut := _cut(rules, fixed, {name: known[name] for name in ranges})) is not None:
            found.append({**domains, **{name: Choices((value,)) for name, value in fixed.items()}, **cut})
    return tuple(found) or (domains,)


def _of(rule: Expr) -> set[str]:
    return {name.path[0] for name in names(rule)}


def _cut(rules: list[Expr], fixed: Mapping[str, Any], ranges: Mapping[str, Domain]) -> dict[str, Domain] | None:
    """The range up to where all rules hold; None if nothing holds."""

    def holds(**more: Any) -> bool:
        try:
            return all(evaluate(rule, {**fixed, **more}) for rule in rules)
        except ExprError:
            return True

    if not ranges:
        return {} if holds() else None
    ((name, domain),) = ranges.items()
    assert isinstance(domain, Range)
    steps = list(_steps(domain))
    if not steps or not holds(**{name: steps[0]}):
        return dict(ranges)  # no numbers, or a rule that rises with it
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(**{name: steps[middle]}) else (low, middle - 1)
    return {name: Range(domain.low, steps[low], domain.step)}


def _steps(domain: Range) -> Iterator[Any]:
    """The values of a range of whole numbers, lowest first; none for other ranges."""
    if type(domain.low) is int and type(domain.high) is int and domain.high - domain.low < 1 << 20:
        step = domain.step or 1
        if step == int(step):
            yield from range(domain.low, domain.high + 1, int(step))
