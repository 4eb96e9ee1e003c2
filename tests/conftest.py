"""For all tests: numeric libraries share the cores as they do where a build runs."""

from __future__ import annotations

from omnic.runtime.threads import wait_asleep

wait_asleep()  # before a test imports torch
