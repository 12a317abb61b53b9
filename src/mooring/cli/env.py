"""``mooring env``: an endpoint and a key, as environment variables for a program that speaks MCP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from mooring.cli.attached import attached, workspace_of
from mooring.cli.output import json_option, no_spawn_option, print_json, say, workspace_option
from mooring.cli.shapes import EnvFile
from mooring.config.files import write_atomically
from mooring.facade import Mooring

KEY_NAME = "env"
"""The key's name; making it ends the previous one of that name in the workspace."""


@click.command()
@workspace_option
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, writable=True),
    metavar="FILE",
    help="Write there (mode 0600), keeping what else is in it, instead of printing the key.",
)
@click.option("--litellm", is_flag=True, help="LiteLLM's endpoint and the workspace's key there.")
@json_option
@no_spawn_option
def env(workspace: str | None, file: str | None, litellm: bool, as_json: bool, no_spawn: bool) -> None:
    """Print MOORING_URL and MOORING_API_KEY for a program.

    Each run makes a new key, named "env", and ends the one it made before. With --litellm it is LITELLM_MCP_URL and
    LITELLM_MCP_KEY, always with the key that the workspace has in LiteLLM.
    """
    target = None if file is None else _target(Path(file))
    before = _text(target) if target else ""

    async def ask(mooring: Mooring) -> tuple[dict[str, str], EnvFile]:
        chosen = await workspace_of(mooring, workspace)
        if litellm:
            access = await mooring.litellm_access(chosen)
            return {"LITELLM_MCP_URL": access.url, "LITELLM_MCP_KEY": access.key}, EnvFile(str(target), "", chosen)
        made = await mooring.key_create(chosen, name=KEY_NAME, replace=True)
        endpoint = (await mooring.status()).public_url
        return {"MOORING_URL": endpoint, "MOORING_API_KEY": made.key}, EnvFile(str(target), made.id, chosen)

    variables, written = attached(ask, spawn=not no_spawn)
    if target:
        write_atomically(target, merged(before, variables).encode("utf-8", "surrogateescape"), mode=0o600)
        if as_json:
            print_json(written)
        say(f"Wrote the key {written.id or 'of LiteLLM'} for workspace {written.workspace} to {target}.")
    elif as_json:
        print_json(variables)
    else:
        click.echo(merged("", variables), nl=False)


def merged(text: str, variables: Mapping[str, str]) -> str:
    """``text`` of an env file with these variables set: in place where they were, else at the end. Pure."""
    left = dict(variables)
    lines: list[str] = []
    for line in text.removeprefix("\ufeff").splitlines():  # a mark of an editor on Windows
        export, name = _name(line)
        if name not in variables:
            lines.append(line)
        elif name in left:
            lines.append(f"{export}{name}={left.pop(name)}")
    lines += [f"{name}={value}" for name, value in left.items()]
    return "\n".join(lines) + "\n"


def _name(line: str) -> tuple[str, str]:
    name, equals, _ = line.strip().partition("=")
    export = "export " if name.startswith("export ") else ""
    return export, name.removeprefix("export ").strip() if equals else ""


def _target(file: Path) -> Path:
    """Checked before the key is made: making it ends the key that stands in the file."""
    if not file.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {file.absolute().parent}", param_hint="--file")
    return file.absolute()


def _text(file: Path) -> str:
    return file.read_text("utf-8", "surrogateescape") if file.exists() else ""
