"""The ``mooring`` command: a group whose verbs are imported when they are asked for, and one place for errors."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

import click

from mooring import __version__
from mooring.cli.output import fail
from mooring.errors import ConfigError, MooringError

VERBS = {
    "up": "daemon",
    "stop": "daemon",
    "reload": "daemon",
    "restart": "daemon",
    "doctor": "doctor",
    "check": "check",
    "ps": "ps",
    "tools": "tools",
    "logs": "logs",
    "call": "call",
    "stdio": "stdio",
    "agent": "agent",
    "server": "server",
    "key": "key",
    "pins": "pins",
    "audit": "audit",
    "secret": "secret",
    "auth": "auth",
    "find": "find",
    "add": "adopting",
    "exec": "adopting",
    "remove": "adopting",
    "approve": "approve",
    "registry": "registry",
    "catalog": "catalog",
    "import": "importing",
    "export": "export",
    "env": "env",
    "plugins": "plugins",
    "litellm": "litellm",
}
"""Verb to module in ``mooring.cli``; there it is a click command of that name ("_" added if reserved)."""


class Verbs(click.Group):
    """Imports a verb's module on first use, so that ``mooring ps`` does not pay for ``mooring import``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = VERBS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(f"mooring.cli.{module}")
        return getattr(found, cmd_name, None) or getattr(found, f"{cmd_name}_")

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            close = difflib.get_close_matches(args[0], VERBS, 1)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a failure is one message on stderr and an exit code, never a traceback for what people or
        machines may get wrong."""
        try:
            return super().invoke(ctx)
        except MooringError as error:
            fail(explained(error))
            sys.exit(error.exit_code)
        except UnicodeError as error:
            fail(f"this is not UTF-8 text: {error}. If it is, use a UTF-8 locale: export LC_ALL=C.UTF-8")
            sys.exit(ConfigError.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read our output has gone; click ends quietly
            fail(str(error))
            sys.exit(1)


def explained(error: MooringError) -> str:
    """The message, with the server's last output where there is some."""
    stderr = str(error.details.get("stderr") or "").strip()
    return f"{error}\nLast lines of its stderr:\n{stderr}" if stderr else str(error)


_COLOR = False if os.environ.get("NO_COLOR") else None
"""None: where there is a terminal. rich asks the same variable by itself."""


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "color": _COLOR})
@click.version_option(__version__, prog_name="mooring")
def cli() -> None:
    """One daemon that runs, shares, guards and serves MCP servers for AI agents.

    Verbs that need the daemon start it. Exit codes: 0 it worked, 1 it did not, 2 the configuration or the command line
    is wrong, 3 there is no daemon, 4 a program that a server needs is not installed.
    """
