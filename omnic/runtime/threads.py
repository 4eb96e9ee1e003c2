"""How the numeric libraries of one process share its cores."""

from __future__ import annotations

import os
import sys
import warnings

# torch's OpenMP threads wait for each other some hundred times a token. By default they spin while they wait, which
# takes a core from whoever works beside them: speech, the event loop, other programs (benchmarks/waiting.py).
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}


def wait_asleep() -> None:
    """Makes OpenMP threads of this process sleep while they wait, unless the user said otherwise.

    OpenMP reads its variables once, when torch is imported: after that this does nothing.
    """
    if "torch" not in sys.modules:
        for name, value in WAITING.items():
            os.environ.setdefault(name, value)


def warn_of_spinning() -> None:
    """Warns where `wait_asleep` came too late and nobody else decided."""
    missing = [f"{name}={value}" for name, value in WAITING.items() if name not in os.environ]
    if missing:
        warnings.warn(
            f"torch was imported before the pipeline, so its threads spin while they wait and take the cores that"
            f" other stages need: import the pipeline first, or set {' '.join(missing)}",
            RuntimeWarning,
            stacklevel=2,
        )
