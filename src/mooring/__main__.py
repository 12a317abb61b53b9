"""The ``mooring`` command. ``stdio``, ``registry`` and plain ``up`` are dispatched before any command-line library is
imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the verb in ``sys.argv`` and exit with its code."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["stdio"], ["registry"]) and not {"-h", "--help"} & set(arguments):
        from mooring.cli.shim import main as shim

        sys.exit(shim(arguments[1:], arguments[0]))
    if arguments[:1] == ["up"] and (len(arguments) == 1 or (len(arguments) == 3 and arguments[1] == "--config")):
        from mooring.cli.up import up

        sys.exit(up(arguments[2] if len(arguments) == 3 else None))
    from mooring.cli.main import cli

    cli()


if __name__ == "__main__":
    main()
