"""The command line. `fast` answers `check`, `fmt` and `--version`; `app` holds every command."""
