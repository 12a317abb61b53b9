"""The ``mooring`` command. ``stdio``, ``registry`` and plain ``up`` are dispatched before any command-line library is
imported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the verb in ``sys.argv`` and exit with its code."""
    _open_closed_streams()
    try:
        _run()
    except KeyboardInterrupt:  # while modules are imported; later everybody has a way of their own to take it
        sys.exit("Aborted!")


def _run() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] in (["stdio"], ["registry"]) and not {"-h", "--help"} & set(arguments):
        from mooring.cli.shim import main as shim

        sys.exit(shim(arguments[1:], arguments[0]))
    if arguments[:1] == ["up"] and (len(arguments) == 1 or (len(arguments) == 3 and arguments[1] == "--config")):
        from mooring.cli.up import up

        sys.exit(up(arguments[2] if len(arguments) == 3 else None))
    from mooring.cli.main import cli

    cli()


def _open_closed_streams() -> None:
    """Whoever started us with a standard stream closed gets /dev/null there: Python has None for it, and the first
    socket would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


if __name__ == "__main__":
    main()
