"""``python -m mooring.testing.conformance``: the server that the official conformance suite wants."""

from __future__ import annotations

import argparse
import asyncio

from mooring.testing.conformance.server import Server


def main() -> None:
    """Run the server until stdin ends, or with ``--http`` until it is terminated."""
    flags = argparse.ArgumentParser(prog="python -m mooring.testing.conformance", description=__doc__)
    flags.add_argument("--http", type=int, metavar="PORT", help="serve http://127.0.0.1:PORT/mcp; 0 takes a free port")
    flags.add_argument("--era", choices=("legacy", "modern", "dual"), default="dual", help="which eras it speaks")
    given = flags.parse_args()
    server = Server(("legacy", "modern") if given.era == "dual" else (given.era,))
    if given.http is None:
        from mooring.testing.conformance import stdio

        asyncio.run(stdio.serve(server))
    else:
        from mooring.testing.conformance import http

        asyncio.run(http.serve(server, given.http))


if __name__ == "__main__":
    main()
