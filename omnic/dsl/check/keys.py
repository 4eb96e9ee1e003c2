"""The keys of stages: that they exist, fit, and hold values that fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from omnic import expr
from omnic.catalog.part import Key
from omnic.catalog.resolve import COMMON_KEYS, common_key
from omnic.contract.blocks import FEWEST
from omnic.contract.domains import Choices, Domain, Range, within
from omnic.contract.types import Type
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl import ast
from omnic.dsl.check.bound import Stage, Value
from omnic.dsl.check.expressions import MISSING, Scope, bounds, constant, kind_of, plain, span_of
from omnic.dsl.check.types import SCALARS, describe, fit
from omnic.expr import Expr, Literal, Name, Quantity, format_value
from omnic.source import Span
from omnic.spelling import did_you_mean


def values(block: ast.Block | None, stage: Stage, scope: Scope, sink: Sink) -> tuple[Value, ...]:
    """The settings of a block as values of the stage's keys; errors for those that are none."""
    found: dict[str, Value] = {}
    seen: dict[str, Span] = {}
    for setting in block.settings if block else ():
        name = str(setting.path)
        if name in seen:
            first = Label(seen[name], "set here")
            sink.error("duplicate-key", f"`{name}` is set twice", setting.path.span, secondary=[first])
            continue
        seen[name] = setting.path.span
        value = _value(setting, stage, scope, sink)
        if value is not None:
            found[name] = value
    return tuple(found.values())


def required(declared: ast.Stage, stage: Stage, given: tuple[Value, ...], sink: Sink) -> None:
    """Says which keys without a default are not set."""
    assert stage.part is not None
    written = {str(s.path) for s in declared.block.settings} if declared.block else set()
    for key in stage.part.keys:
        if key.required and key.name not in written:
            hint = (
                f"`{key.name}`, {describe_key(key)}: {key.doc}" if key.doc else f"`{key.name}` is {describe_key(key)}"
            )
            sink.error(
                "missing-key",
                f"`{span_of(declared.value).text}` needs `{key.name}`",
                span_of(declared.value),
                help=[hint],
            )


def find(name: str, stage: Stage) -> tuple[Key, bool] | None:
    """The key `name` of a stage, and whether it is one that every stage has."""
    assert stage.part is not None
    if (own := stage.part.key(name)) is not None:
        return own, False
    if stage.inner is None and (common := common_key(name, stage.part.kind)) is not None:
        return common, True
    return None


def _value(setting: ast.Setting, stage: Stage, scope: Scope, sink: Sink) -> Value | None:
    name = str(setting.path)
    found = find(name, stage)
    if found is None:
        _unknown(setting, stage, sink)
        return None
    key, common = found
    if key.unsupported is not None:
        sink.error("not-supported-yet", f"`{name}`: {key.unsupported}", setting.path.span)
        return None
    here = _Reading(key, common, stage, scope, sink)
    value = here.read(setting.value)
    if value is MISSING:
        return None
    if (later := key.refusal(value)) is not None:
        sink.error("not-supported-yet", f"`{name} = {span_of(setting.value).text}`: {later}", span_of(setting.value))
        return None
    return Value(key, value, common, setting.span)


def _unknown(setting: ast.Setting, stage: Stage, sink: Sink) -> None:
    assert stage.part is not None
    name, kind = str(setting.path), stage.part.kind
    if stage.inner is None and (elsewhere := next((k for k in COMMON_KEYS if k.name == name), None)) is not None:
        sink.error(
            "misplaced-key",
            f"`{name}` is a key of {' and '.join(elsewhere.kinds)} stages; `{stage.name}` is a {kind} stage",
            setting.path.span,
        )
        return
    own = [key.name for key in stage.part.keys]
    known = own if stage.inner else [*own, *(k.name for k in COMMON_KEYS if k.fits(kind))]
    hint = did_you_mean(name, known)
    notes = [f"`{stage.what}` has {listing(own)}"] if own and not hint else []
    sink.error("unknown-key", f"`{stage.name}` has no key `{name}`", setting.path.span, hint, notes=notes)


def describe_key(key: Key) -> str:
    """What a key takes, in words."""
    if isinstance(key.domain, Range) and isinstance(key.domain.low, Quantity):
        return f"a quantity such as `{key.domain.low}`"
    return describe(key.type)


class _Reading:
    """Reads the value of one key."""

    def __init__(self, key: Key, common: bool, stage: Stage, scope: Scope, sink: Sink) -> None:
        self.key, self.common, self.stage, self.scope, self.sink = key, common, stage, scope, sink

    def read(self, value: Expr) -> Any:
        """A literal, a tuple, or an expression over params; MISSING, and an error, if it does not fit the key."""
        if self.key.name == "place":
            return self._places(value)
        if self.key.name == "cache":
            return self._cache(value)
        if self.key.name == "offload":
            return self._offload(value)
        match value:
            case Name(path=(word,)) if self._is_word(word):
                return word
            case Name(path=(word, *_)) if self.key.type.kind == "enum" and (
                self.common or word not in self.scope.types
            ):
                hint = did_you_mean(word, [str(a) for a in self.key.type.args])
                notes = [] if hint else [f"`{self.key.name}` is {describe_key(self.key)}"]
                return self._error("unknown-choice", f"`{self.key.name}` cannot be `{value}`", value, hint, notes)
            case ast.List():
                return self._list(value)
            case ast.Call() if self.key.type.kind == "json" and value.path.head.text not in expr.FUNCTIONS:
                return self._call(value)
            case ast.Signature():
                return self._error("wrong-value", f"`{self.key.name}` takes {describe_key(self.key)}", value)
            case Literal():
                return self._literal(value)
        return self._expression(value)

    def _places(self, value: Expr) -> Any:
        """Devices by number: not negative, each once."""
        devices = self._list(value) if isinstance(value, ast.List) else ()
        whole = devices is MISSING or all(isinstance(d, int) and not isinstance(d, bool) and d >= 0 for d in devices)
        if not devices or not whole or (devices is not MISSING and len(set(devices)) < len(devices)):
            return self._error("wrong-value", "`place` takes a list of devices, each once, such as `[0, 1]`", value)
        return devices

    def _cache(self, value: Expr) -> Any:
        """A step cache that the part offers, alone or with its threshold."""
        match value:
            case Literal(value=None):
                return None
            case Name(path=(kind,)):
                made: Any = kind
            case ast.Call() if value.path.tail is None and len(value.args) == 1:
                kind, made = value.path.head.text, self._call(value)
                threshold = None if made is MISSING else made.args[0].value
                if not isinstance(threshold, int | float) or isinstance(threshold, bool) or not 0 <= threshold <= 10:
                    return self._error("wrong-value", f"the threshold of `{kind}` is a number in 0..10", value)
            case _:
                return self._error("wrong-value", "`cache` takes a step cache such as `first_block(0.1)`", value)
        offered = [cache.kind for cache in self.stage.part.step_caches] if self.stage.part else []
        if kind in offered:
            return made
        hint = did_you_mean(kind, offered) or (f"it can have {listing(offered)}" if offered else "it can have none")
        return self._error("no-such-choice", f"`{self.stage.what}` has no step cache `{kind}`", value, hint)

    def _offload(self, value: Expr) -> Any:
        """`layers`, with how many stay if that is said."""
        takes = "`offload` takes `layers`, `layers(resident = 20)` or `none`"
        stays: Expr | None = None
        match value:
            case Literal(value=None):
                return None
            case Name(path=("layers",)):
                pass
            case ast.Call(args=(), named=((name, given),)) if str(value.path) == "layers" and str(name) == "resident":
                stays = given
            case _:
                return self._error("wrong-value", takes, value)
        counts = [len(sizes) for _, each in (self.stage.part.blocks if self.stage.part else ()) for sizes in each]
        most = min(counts, default=0) - FEWEST
        if most < 0:
            why = f"`{self.stage.what}` has no list of {FEWEST} blocks or more that could leave its device"
            return self._error("no-such-choice", why, value, "remove this")
        if stays is None:
            return "layers"
        count = constant(stays, self.sink, "`resident`")
        if count is MISSING:
            return MISSING
        if type(count) is not int or not 0 <= count <= most:
            note = f"two buffers take the places of two blocks: {FEWEST} of {most + FEWEST} must leave"
            return self._error("wrong-value", f"`resident` is a whole number in 0..{most}", stays, "", [note])
        return expr.Call("layers", (Literal(count),), span=span_of(value))

    def _is_word(self, word: str) -> bool:
        """Whether a bare word is meant as itself, not as a param."""
        if self.key.type.kind == "enum":
            return word in self.key.type.args
        return self.key.type.kind == "json" and word not in self.scope.types

    def _literal(self, value: Literal) -> Any:
        domain = self.key.domain
        if isinstance(domain, Range) and isinstance(domain.low, Quantity):
            return self._quantity(value, domain)
        open_ = self.key.default is None and self.key.type.kind != "json" and not self.key.required
        if value.value is None and open_ and not self.common:
            return None
        if isinstance(self.key.default, tuple) and isinstance(value.value, str):
            return (value.value,)
        fitted = fit(value.value, self.key.type)
        if fitted is MISSING:
            shown = format_value(value.value)
            return self._error(
                "wrong-value", f"`{self.key.name}` takes {describe_key(self.key)}", value, f"not `{shown}`"
            )
        return self._in_domain(fitted, fitted, value)

    def _quantity(self, value: Literal, domain: Range) -> Any:
        assert isinstance(domain.low, Quantity)
        quantity = value.value
        if not isinstance(quantity, Quantity) or quantity.dimension != domain.low.dimension:
            shown = format_value(quantity)
            return self._error(
                "wrong-value", f"`{self.key.name}` takes {describe_key(self.key)}", value, f"not `{shown}`"
            )
        return self._in_domain(quantity, quantity.base, value)

    def _in_domain(self, value: Any, number: Any, at: Expr) -> Any:
        domain = self.key.domain
        if domain is not None and number not in domain:
            return self._error(
                "value-outside-domain", f"`{self.key.name}` takes {_rule(domain)}", at, f"not `{format_value(value)}`"
            )
        return value

    def _list(self, value: ast.List) -> Any:
        if self.key.type.kind != "json" and not isinstance(self.key.default, tuple):
            return self._error("wrong-value", f"`{self.key.name}` takes {describe_key(self.key)}", value, "not a list")
        items = [self._item(item) for item in value.items]
        return MISSING if MISSING in items else tuple(items)

    def _item(self, item: Expr) -> Any:
        if (
            isinstance(item, Name)
            and len(item.path) == 1
            and self.key.type.kind == "json"
            and self._is_word(item.path[0])
        ):
            return item.path[0]
        found = constant(item, self.sink, f"an item of `{self.key.name}`")
        if found is not MISSING and self.key.type.kind != "json" and fit(found, self.key.type) is MISSING:
            return self._error("wrong-value", f"each item of `{self.key.name}` is {describe(self.key.type)}", item)
        return found

    def _call(self, value: ast.Call) -> Any:
        if value.path.tail is not None or value.named:
            return self._error("not-supported-yet", f"`{self.key.name}` does not take `{value.path}` yet", value)
        args = [constant(arg, self.sink, f"an argument of `{value.path}`") for arg in value.args]
        if MISSING in args:
            return MISSING
        return expr.Call(value.path.head.text, tuple(Literal(arg) for arg in args), span=value.span)

    def _expression(self, value: Expr) -> Any:
        if self.common:
            found = constant(value, self.sink, f"`{self.key.name}`")
            return MISSING if found is MISSING else self._literal(Literal(found, span=value.span))
        if isinstance(self.key.default, tuple):
            return self._error(
                "wrong-value", f"`{self.key.name}` takes strings as they are, not what params hold", value
            )
        made = plain(value, self.sink)
        if made is None:
            return MISSING
        if next(expr.names(made), None) is None:
            found = constant(made, self.sink, f"`{self.key.name}`")
            return MISSING if found is MISSING else self._literal(Literal(found, span=value.span))
        kind = kind_of(made, self.scope, self.sink)
        if kind is None:
            return MISSING
        if not self._kind_fits(kind):
            return self._error(
                "wrong-value", f"`{self.key.name}` takes {describe_key(self.key)}", value, f"`{made}` is `{kind}`"
            )
        for name in expr.names(made):
            own = self.scope.types[name.path[0]]
            if own is not None and own.optional and not self.key.type.optional:
                what = f"`{self.stage.name}.{self.key.name}` needs a value, and `{name}` may be absent"
                return self._error("may-be-absent", what, value, f"declare `{name.path[0]}` without its `?`")
        if self.key.name == self.key.type.kind == "seed" and made != Name(("seed",)):
            what = "stages draw with the seed of the request: `seed` takes a number, or the param `seed`"
            return self._error("one-seed", what, value)
        return self._covered(made, value)

    def _kind_fits(self, kind: str) -> bool:
        wanted = self.key.type.kind
        if isinstance(self.key.domain, Range) and isinstance(self.key.domain.low, Quantity):
            return False  # a unit is written, never sent by a request
        alike = {"float": ("int", "float"), "seed": ("int",), "json": SCALARS, "text": ("enum",), "enum": ("text",)}
        return kind == wanted or kind in alike.get(wanted, ())

    def _covered(self, made: Expr, value: Expr) -> Any:
        """The expression, if every value it can have is one that the key takes."""
        domain = self.key.domain
        if isinstance(made, Name) and len(made.path) == 1:
            mine = self.scope.types[made.path[0]]
            if self.key.type.kind == "enum" and mine is not None:
                return self._enum_covered(made, mine, value)
            own = self.scope.domains.get(made.path[0])
            if domain is None or own is None or within(own, domain):
                return made  # a param without a domain takes that of its key
            return self._error(
                "domain-too-wide",
                f"param `{made}` can be {_rule(own)}, but `{self.stage.name}.{self.key.name}` takes {_rule(domain)}",
                value,
                f"narrow the domain of `{made}`",
            )
        if domain is None:
            return made
        reach = bounds(made, self.scope.domains)
        if reach is None:
            names = sorted({n.path[0] for n in expr.names(made) if self.scope.domains.get(n.path[0]) is None})
            hint = f"give {listing(names)} a domain" if names else ""
            rule = f"`{self.key.name}` takes {_rule(domain)}"
            return self._error("domain-unknown", f"{rule}; which values `{made}` can have is open", value, hint)
        if not isinstance(domain, Range) or not _holds(domain, reach):
            low, high = (int(b) if float(b).is_integer() else b for b in reach)
            return self._error(
                "domain-too-wide",
                f"`{made}` can be {low} to {high}, but `{self.stage.name}.{self.key.name}` takes {_rule(domain)}",
                value,
            )
        return made

    def _enum_covered(self, made: Name, mine: Type, value: Expr) -> Any:
        own = self.scope.domains.get(made.path[0])
        offered = mine.args if mine.kind == "enum" else own.values if isinstance(own, Choices) else None
        extra = [str(a) for a in offered or () if a not in self.key.type.args]
        if offered is None or extra:
            what = f"`{made}` can be {listing(extra, last='or')}" if extra else f"`{made}` can be any text"
            return self._error(
                "domain-too-wide", f"{what}, but `{self.key.name}` takes {describe_key(self.key)}", value
            )
        return made

    def _error(self, id: str, headline: str, at: Expr, label: str = "", notes: Sequence[str] = ()) -> Any:
        self.sink.error(id, headline, span_of(at), label, notes=notes)
        return MISSING


def _holds(domain: Range, reach: tuple[float, float]) -> bool:
    low, high = (b.base if isinstance(b, Quantity) else b for b in (domain.low, domain.high))
    fits = isinstance(low, int | float) and isinstance(high, int | float) and low <= reach[0] and reach[1] <= high
    return fits and domain.step is None


def _rule(domain: Domain) -> str:
    return str(domain) if isinstance(domain, Range) else f"one of {', '.join(map(format_value, domain.values))}"


def narrowed(domain: Domain | None, keys: list[Domain]) -> Domain | None:
    """The domain of a param: its own, or what all keys it is bound to take; None if those have nothing in common."""
    if domain is not None or not keys:
        return domain
    first, *others = keys
    for other in others:
        if within(other, first):
            first = other
        elif not within(first, other):
            return None
    return first
