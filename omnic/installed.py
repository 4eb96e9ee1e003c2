"""What is installed here, held against what omnic's own metadata asks for.

Reads distribution metadata only: nothing that is looked at gets imported.
"""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)\s*(?:\[[^]]*])?\s*\(?(?P<bounds>[^;()]*)\)?\s*(?:;(?P<marker>.*))?$")
_BOUND = re.compile(r"\s*(<=|>=|==|!=|<|>)\s*([\w.]+)\s*$")
_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)\.?(a|b|c|rc|alpha|beta|pre|dev)?")


class Unmet(ImportError):
    """Something omnic needs is missing, or of a version it does not work with. One line that says how to mend it."""


@dataclass(frozen=True, slots=True)
class Need:
    """A distribution that omnic depends on, and the version found here (None: not installed)."""

    name: str
    bounds: str  # ">=1.2,<2"
    extra: str | None  # the extra of omnic that asks for it; None for the base install
    found: str | None

    @property
    def met(self) -> bool:
        return self.found is not None and within(self.found, self.bounds)

    def __str__(self) -> str:
        return f"{self.name}{self.bounds}"


def version(name: str) -> str | None:
    """The installed version of a distribution, None if there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def needs(*extras: str | None) -> tuple[Need, ...]:
    """What omnic asks for: by the base install (`None`) and by the named extras; all of it if none are named.

    Empty where omnic runs from a source tree that was never installed, which has no metadata.
    """
    try:
        lines = importlib.metadata.requires("omnic") or []
    except importlib.metadata.PackageNotFoundError:
        return ()
    asked = (_asked(line) for line in lines)
    return tuple(
        Need(name, bounds, extra, version(name)) for name, bounds, extra in asked if not extras or extra in extras
    )


def _asked(line: str) -> tuple[str, str, str | None]:
    """Name, bounds and extra of a requirement."""
    match = _REQUIREMENT.match(line)
    assert match is not None, f"omnic's own metadata has a requirement it cannot read: {line}"
    extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", match["marker"] or "")
    bounds = ",".join(sorted((part.strip() for part in match["bounds"].split(",") if part.strip()), reverse=True))
    return match["name"], bounds, extra and extra[1]


def require(extra: str | None = None) -> None:
    """Raises Unmet for the first thing that the base install, or an extra, needs and this environment lacks."""
    for need in needs(extra):
        if not need.met:
            found = f"found {need.found}" if need.found else "it is not installed"
            package = f"omnic[{extra}]" if extra else "omnic"
            raise Unmet(f"{package} needs {need}, {found}: pip install '{package}'")


def within(version: str, bounds: str) -> bool:
    """Whether a version satisfies comma-separated bounds such as `>=1.2,<2`. A pre-release precedes its release."""
    return all(_holds(version, bound) for bound in bounds.split(",") if bound.strip())


def _holds(version: str, bound: str) -> bool:
    match = _BOUND.match(bound)
    assert match is not None, f"omnic's own metadata has a bound it cannot read: {bound}"
    found, limit = _order(version), _order(match[2])
    return {
        "<=": found <= limit,
        ">=": found >= limit,
        "==": found == limit,
        "!=": found != limit,
        "<": found < limit,
        ">": found > limit,
    }[match[1]]


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """A value that sorts as the version does: its numbers without trailing zeros, then whether it is a release."""
    match = _RELEASE.match(version)
    numbers = [int(part) for part in match[1].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), match is not None and match[2] is None
