"""``mooring up``: become the daemon. Starts the keeper before its own imports, so that both cores work."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from types import SimpleNamespace
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
    """Without two modules that take 3 ms, half of what msgspec itself does, until somebody has a need of them: of
    ``typing_extensions`` it has none in these versions of Python; ``platform`` is for ``uuid``, which it brings along
    and which asks for the name of the system alone."""
    loaded = cast("dict[str, object]", sys.modules)
    stand_ins = {"typing_extensions": None, "platform": SimpleNamespace(system=lambda: os.uname().sysname)}
    hidden = {name: stand_in for name, stand_in in stand_ins.items() if name not in loaded}
    loaded.update(hidden)
    import_module("msgspec")
    for name in hidden:
        del loaded[name]
