"""Before any test imports torch: its threads then sleep while they wait, as in use."""

import omnic.runtime  # noqa: F401 - for what importing it does
