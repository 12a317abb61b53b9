"""Mooring as a command that clients start. Used by the ``export`` verb and the registry."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mooring.export import documents
from mooring.export.clients import Command, find


def stdio_command(workspace: str, environ: Mapping[str, str]) -> Command:
    """``mooring stdio`` by its absolute path: a client's PATH is rarely the one of a terminal."""
    home = environ.get("MOORING_HOME", "")
    env = {"MOORING_HOME": os.path.abspath(os.path.expanduser(home))} if home else {}
    program = os.path.join(os.path.dirname(sys.executable), "mooring")
    return Command(program, ("stdio", "-w", workspace), env)


def write(client: str, workspace: str, environ: Mapping[str, str]) -> str:
    """Write Mooring into the file of a client; what was done, in words. Raises ConfigError and OSError."""
    known = find(client)
    change = documents.registered(known, known.file(environ), stdio_command(workspace, environ))
    change.apply()
    if change.empty:
        return f"{known.title} has Mooring in {change.file} already."
    return f"Mooring is in {change.file} now. {known.advice}".rstrip()
