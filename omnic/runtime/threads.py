"""How the numeric libraries of one process share its cores."""

from __future__ import annotations

import os

# torch's OpenMP threads wait for each other some hundred times a token. By default they spin while they wait, which
# takes a core from whoever works beside them (speech, the event loop, other programs): on a busy machine with two
# cores a token then takes three to eight times as long. Asleep they cost a tenth on an idle one.
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}


def wait_asleep() -> None:
    """Makes OpenMP threads of this process sleep while they wait, unless the user said otherwise.

    Must be called before torch is imported: OpenMP reads its variables once. Processes that are started get it from
    their environment (`WAITING`).
    """
    for name, value in WAITING.items():
        os.environ.setdefault(name, value)
