"""What a build runs on. Whoever imports any of it before torch gets threads that sleep while they wait."""

from omnic.runtime.threads import wait_asleep

wait_asleep()
