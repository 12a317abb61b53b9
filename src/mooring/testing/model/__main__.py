"""``python -m mooring.testing.model [--port N]``: serve a scripted model; the first line on stdout is its address."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from mooring.testing.model.server import Model


async def serve(host: str, port: int) -> None:
    """Serve for ever."""
    async with Model(host, port) as model:
        print(model.url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Read the flags and serve."""
    flags = argparse.ArgumentParser(prog="python -m mooring.testing.model", description=__doc__)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=0, help="0 (default) is any free one")
    chosen = flags.parse_args()
    with suppress(KeyboardInterrupt):
        asyncio.run(serve(chosen.host, chosen.port))


if __name__ == "__main__":
    main()
