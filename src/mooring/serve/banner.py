"""What ``mooring up`` tells the person at the terminal: where it is, the first key, what to paste into a client, and
the tools as soon as they are known.

Pure but for looking up where the ``mooring`` command is.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mooring import __version__

if TYPE_CHECKING:
    from mooring.config.plan import Plan
    from mooring.nouns import NewKey
    from mooring.relay.table import Table

WIDTH = 100
"""Columns of the tool list."""


def banner(plan: Plan, endpoint: str, key: NewKey | None) -> str:
    """The text, with a newline at its end. ``key``: the first one, when it was made just now."""
    lines = [
        f"Mooring {__version__} is ready.",
        f"  endpoint    {endpoint}",
        f"  config      {plan.files[0] if plan.files else 'none'}",
    ]
    for workspace in plan.workspaces.values():
        servers = ", ".join(mount.server for mount in workspace.mounts) or "no servers yet"
        lines.append(f"  workspace   {workspace.name}: {servers}")
        if workspace.anonymous:
            lines.append(f"  ANONYMOUS   workspace {workspace.name} needs no key from this machine")
    lines += [f"  unavailable {v.server}: {v.unavailable}" for v in plan.variants.values() if v.unavailable]
    lines += [f"  {problem.level:<11} {problem.message}" for problem in plan.problems if problem.level != "info"]
    if key is not None:
        lines += _first_key(endpoint, key)
    else:
        lines += ["", f"A key for a client: {_shell()} key create WORKSPACE"]
    return "\n".join(lines) + "\n"


def tools(tables: Mapping[str, Table]) -> str:
    """The tools of each workspace, by server, once they have been listed; servers that could not be are left out."""
    lines: list[str] = []
    for workspace, table in tables.items():
        lines += ["", f"{len(table.tools)} tools in workspace {workspace}:"]
        for mount in table.mounts:
            names = ", ".join(name for name, route in table.tools.items() if route.mount is mount)
            shown = names if len(names) <= WIDTH else names[:WIDTH].rpartition(",")[0] + ", ..."
            if shown:
                lines.append(f"  {mount.server}: {shown}")
        lines += [f"  {problem.level:<11} {problem.message}" for problem in table.problems]
    example = next(iter(tables), "default")
    return "\n".join([*lines, "", f"In another terminal: {_shell()} tools -w {example}"]) + "\n"


def _first_key(endpoint: str, key: NewKey) -> list[str]:
    environment = f', "env": {{"MOORING_HOME": {_json(_home())}}}' if _home() else ""
    return [
        "",
        f"Key for workspace {key.workspace}, shown this once:",
        f"  {key.key}",
        "",
        "Paste into a client, for example Claude Code:",
        f'  claude mcp add --transport http mooring {endpoint} --header "Authorization: Bearer {key.key}"',
        'or, for clients with a JSON file, below "mcpServers":',
        f'  "mooring": {{"type": "http", "url": "{endpoint}", "headers": {{"Authorization": "Bearer {key.key}"}}}}',
        "or, for clients that start commands, without any key:",
        f'  "mooring": {{"command": {_json(_command())}, "args": ["stdio", "-w", "{key.workspace}"]{environment}}}',
    ]


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _command() -> str:
    """The absolute path of ``mooring``: the PATH of a client is rarely the one of this terminal."""
    return os.path.join(os.path.dirname(sys.executable), "mooring")


def _home() -> str:
    home = os.environ.get("MOORING_HOME", "")
    return os.path.abspath(os.path.expanduser(home)) if home else ""


def _shell() -> str:
    """The command as it works in any terminal."""
    command = shlex.quote(_command())
    return f"MOORING_HOME={shlex.quote(_home())} {command}" if _home() else command
