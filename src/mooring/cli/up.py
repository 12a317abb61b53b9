"""``mooring up``: become the daemon. Starts the keeper before its own imports, so that both cores work."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import cast

from mooring.launch.start import start_keeper


def up(config: str | None) -> int:
    """Run the daemon in the foreground; the exit code. ``config``: a TOML file other than the home's."""
    if config is not None and not os.path.isfile(config):
        sys.stderr.write(f"mooring: there is no file {config}\n")
        return 2
    started = start_keeper()
    gc.disable()  # what imports make stays for good: looking for garbage in it takes 6 % of the boot
    _import_msgspec()
    import uvloop

    from mooring.errors import MooringError
    from mooring.serve.daemon import run

    try:
        return uvloop.run(run(config, started))
    except MooringError as error:
        sys.stderr.write(f"mooring: {error}\n")
        return error.exit_code


def _import_msgspec() -> None:
    """Without ``typing_extensions``: msgspec takes it when it is installed, has no need of it in these versions of
    Python, and it takes 2 ms, a third of what msgspec itself does."""
    hidden = cast("dict[str, object]", sys.modules)
    before = hidden.setdefault("typing_extensions", None)
    import_module("msgspec")
    if before is None:
        del hidden["typing_extensions"]
