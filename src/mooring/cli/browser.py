"""The person's part of a login: the address is shown, a browser opened where there is one, and the answer awaited, from
the browser or pasted into the terminal.

Used by ``mooring auth login``; fulfils ``wire.oauth.Redirect``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import click

from mooring.wire.oauth_redirect import Redirects


class Browser:
    """``patience``: seconds that the person has, to be told."""

    def __init__(self, redirects: Redirects, patience: float) -> None:
        self.uri = redirects.uri
        self._redirects = redirects
        self._patience = patience

    async def ask(self, url: str) -> Mapping[str, str]:
        """Send the person to ``url`` and wait for the answer; the waiting is bounded by the caller."""
        self._redirects.expect(url)
        opened = _open(url)
        minutes = f"{self._patience / 60:g} minutes"
        lead = "Log in in the browser, or open" if opened else "To log in, open"
        click.echo(f"{lead} this address (within {minutes}):\n\n{url}\n", err=True)
        click.echo(f"If it ends at a page that does not load ({self.uri}), paste its address here.", err=True)
        with _pasting(self._redirects):
            return await self._redirects.answer()


def _open(url: str) -> bool:
    """Open a window where somebody would see it. Never a browser in this terminal, and never one that keeps us."""
    shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not (sys.stdout.isatty() and shown):
        return False
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
    return True


@contextmanager
def _pasting(redirects: Redirects) -> Generator[None]:
    """Take an address from stdin."""
    loop, descriptor, line = asyncio.get_running_loop(), sys.stdin.fileno(), bytearray()

    def read() -> None:
        data = os.read(descriptor, 1 << 16)
        line.extend(data)
        if not data:
            loop.remove_reader(descriptor)
        elif b"\n" in data:
            if not redirects.take(line.decode(errors="replace")):
                click.echo("That is not the address that this login ends at.", err=True)
            line.clear()

    try:
        loop.add_reader(descriptor, read)
    except OSError:  # a file: nobody will paste anything
        yield
        return
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
