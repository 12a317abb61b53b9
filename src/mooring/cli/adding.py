"""From the arguments of ``mooring server add`` to a table, and to lists of workspaces. Pure but for absolute paths."""

from __future__ import annotations

import os.path
import tomllib
from collections.abc import Iterable
from typing import Any

import click
import msgspec

from mooring.config.edit import Edit
from mooring.config.names import did_you_mean
from mooring.config.resolve import DEFAULT_WORKSPACE
from mooring.config.secret_shapes import secret_name, secret_value
from mooring.errors import ConfigError

SOURCES = ("env", "file", "keyring", "store")
"""Where ``--secret`` may point to."""


def definition(
    command: tuple[str, ...], url: str | None, image: str | None, variables: Iterable[str], secrets: Iterable[str]
) -> dict[str, Any]:
    """The server's table. Raises UsageError."""
    if url is not None and (image is not None or command):
        raise click.UsageError("A server has either --url, --image or a command.")
    table: dict[str, Any] = {}
    if url is not None:
        table["url"] = url
    elif image is not None:
        table["image"] = image
    elif command:
        table["command"] = _program(command[0])
        command = command[1:]
    else:
        raise click.UsageError("Say what it is: --url URL, --image IMAGE, or -- COMMAND ARGUMENTS")
    if command:
        table["args"] = list(command)
    if env := dict(_pair(variable) for variable in variables):
        table["env"] = env
    if references := dict(_secret(secret) for secret in secrets):
        table["secrets"] = references
    return table


def suspicious(variables: Iterable[str]) -> list[str]:
    """Names of plain variables that seem to hold a secret."""
    pairs = (_pair(variable) for variable in variables)
    return [name for name, value in pairs if value and (secret_name(name) or secret_value(value))]


def granted(edit: Edit, server: str, workspaces: Iterable[str]) -> Edit:
    """The edit, which also gives ``server`` to these workspaces. Raises ConfigError when there is no such one."""
    texts = dict(edit.texts)
    for workspace in dict.fromkeys(workspaces):
        known = edit.loaded.config.workspaces
        if workspace == DEFAULT_WORKSPACE and not (known or edit.loaded.config.agents):
            continue
        if workspace not in known:
            raise ConfigError(f'there is no workspace "{workspace}"{did_you_mean(workspace, known)}')
        if "*" in known[workspace].mcp_servers:
            continue
        file, _ = edit.loaded.place(("workspaces", workspace))
        texts[file] = _with_grant(texts.get(file) or edit.loaded.sources[file], workspace, server)
    return msgspec.structs.replace(edit, texts=texts)


def _program(command: str) -> str:
    """A path is meant from where the user is, not from the configuration file."""
    return os.path.abspath(os.path.expanduser(command)) if "/" in command else command


def _pair(variable: str) -> tuple[str, str]:
    name, equals, value = variable.partition("=")
    if not name or not equals:
        raise click.BadParameter("write NAME=VALUE", param_hint="--env")
    return name, value


def _secret(written: str) -> tuple[str, dict[str, str]]:
    """Never repeats what stands after "=": it may be the secret itself."""
    name, equals, reference = written.partition("=")
    if not equals:
        return name, {"store": name}
    source, _, where = reference.partition(":")
    if source not in SOURCES or not where:
        hint = ", ".join(f"{source}:..." for source in SOURCES)
        raise click.BadParameter(
            f"{name} needs a reference, not the value: one of {hint}. To store a value: mooring secret set {name}",
            param_hint="--secret",
        )
    return name, {source: os.path.abspath(os.path.expanduser(where)) if source == "file" else where}


def _with_grant(text: str, workspace: str, server: str) -> str:
    import tomlkit

    document: Any = tomlkit.parse(text)
    table = document["workspaces"][workspace]
    if "mcp_servers" in table:
        table["mcp_servers"].append(server)
        return tomlkit.dumps(document)
    table.add("mcp_servers", [server])
    made = tomlkit.dumps(document)
    if tomllib.loads(made)["workspaces"][workspace].get("mcp_servers") != [server]:  # tomlkit put it under a sub-table
        raise ConfigError(f'add mcp_servers = ["{server}"] to [workspaces.{workspace}] by hand')
    return made
