"""Keys by whose one value all stages of a model go, such as the size of what is made."""

from __future__ import annotations

from collections.abc import Mapping

from omnic.catalog.part import Key
from omnic.diagnostics import Label, Sink, listing
from omnic.dsl.check.bound import Stage, Value


def agreed(stages: Mapping[str, Stage], sink: Sink) -> dict[str, Stage]:
    """The stages, each shared key that one leaves out set as another stage of its model sets it. An error where those
    that set it do not agree."""
    made = dict(stages)
    for stage in stages.values():
        taken = {value.key.name for value in stage.values}
        open_ = [key for key in (stage.part.keys if stage.part else ()) if key.shared and key.name not in taken]
        found = [value for key in open_ if (value := _of_others(key, stage, stages, sink)) is not None]
        made[stage.name] = stage._replace(values=(*stage.values, *found))
    return made


def _of_others(key: Key, stage: Stage, stages: Mapping[str, Stage], sink: Sink) -> Value | None:
    set_ = {
        other.name: value
        for other in stages.values()
        if other.model == stage.model is not None and other.name != stage.name
        for value in other.values
        if value.key.name == key.name
    }
    if len({value.value for value in set_.values()}) > 1:
        sink.error(
            "which-value",
            f"`{stage.name}` must say its `{key.name}`: {listing(set_)} have different ones",
            stage.span,
            secondary=[Label(value.span, f"of `{name}`") for name, value in set_.items()],
        )
    return next(iter(set_.values()))._replace(key=key) if len(set_) > 0 else None
