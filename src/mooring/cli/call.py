"""``mooring call``: one tool call, the way any client's goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import click
import msgspec

from mooring.cli.attached import attached, workspace_of
from mooring.cli.output import json_option, no_spawn_option, print_json, visible, warn, workspace_option
from mooring.errors import Declined, LaunchMissing, Unconfirmed
from mooring.facade import Mooring

Verb = Callable[..., Awaitable[dict[str, Any]]]
"""``Mooring.call`` or ``Mooring.exec``."""
Ask = Callable[[Mooring, bool], Awaitable[dict[str, Any]]]
"""Makes the call, which a person has agreed to or not."""


@click.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@workspace_option
@json_option
@no_spawn_option
def call(tool: str, arguments: str, workspace: str | None, as_json: bool, no_spawn: bool) -> None:
    """Call TOOL with ARGUMENTS, a JSON object.

    "-" reads it from stdin. A call that a person has to agree to is asked about, in a terminal. Exit 1 when the tool
    failed, 4 when a program that its server needs is not installed.
    """
    run(Mooring.call, tool, arguments, workspace, as_json, no_spawn)


def run(verb: Verb, tool: str, arguments: str, workspace: str | None, as_json: bool, no_spawn: bool) -> NoReturn:
    """Call a tool, print its result and exit. Raises Declined."""
    given = _arguments(arguments)

    async def ask(mooring: Mooring, agreed: bool) -> dict[str, Any]:
        return await verb(mooring, await workspace_of(mooring, workspace), tool, given, heard, agreed=agreed)

    result = _answered(ask, tool, given, spawn=not no_spawn)
    if as_json:
        print_json(result)
    else:
        for text in texts(result):
            click.echo(visible(text), err=bool(result.get("isError")))
    sys.exit(exit_code(result))


def _answered(ask: Ask, tool: str, given: dict[str, Any], *, spawn: bool) -> dict[str, Any]:
    """The result of a call; where a person has to agree to it, the one at the terminal is asked. Raises Declined."""
    result = attached(lambda mooring: ask(mooring, False), spawn=spawn, limit=None)
    failure = failure_of(result)
    if failure.get("kind") != Unconfirmed.kind:
        return result
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        warn("nobody can be asked here. In a terminal, with the arguments on the command line, this command asks you")
        return result
    shown = visible(msgspec.json.encode(given).decode())
    if click.confirm(f"Allow this call of {visible(tool)} (server {failure.get('server')})?\n{shown}\n", err=True):
        return attached(lambda mooring: ask(mooring, True), spawn=spawn, limit=None)
    raise Declined


def _arguments(text: str) -> dict[str, Any]:
    """A JSON object that was written on the command line; "-" stands for what stdin has."""
    given = sys.stdin.buffer.read() if text == "-" else os.fsencode(text)
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"not a JSON object: {error}", param_hint="ARGUMENTS") from None


def heard(what: str, data: Any) -> None:
    """Progress and log messages, for people only."""
    if sys.stderr.isatty():
        text = data.get("message") or data.get("data") or ""
        amount = f"{data['progress']:g}/{data['total']:g} " if "total" in data else ""
        click.echo(click.style(visible(f"{what}: {amount}{text}"), dim=True), err=True)


def exit_code(result: dict[str, Any]) -> int:
    """What a verb that called a tool ends with."""
    if not result.get("isError"):
        return 0
    failure = failure_of(result)
    missing = LaunchMissing.kind in (failure.get("kind"), failure.get("cause"))
    return LaunchMissing.exit_code if missing else 1


def failure_of(result: dict[str, Any]) -> dict[str, Any]:
    """What Mooring says about a failure of its own; empty for every other result."""
    if not result.get("isError"):
        return {}
    from mooring.relay.refusals import ERROR_KEY  # failures only

    return result.get("_meta", {}).get(ERROR_KEY, {})


def texts(result: dict[str, Any]) -> list[str]:
    """A result for a terminal: its content, or, when it has none, its structured content."""
    texts = [_shown(block) for block in result.get("content", ())]
    if not texts and "structuredContent" in result:
        return [msgspec.json.encode(result["structuredContent"]).decode()]
    return texts


def _shown(block: dict[str, Any]) -> str:
    """A content block: text as it is, anything else by what it is."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "resource_link":
            return f"[resource {block.get('uri')}]"
        case "image" | "audio" as kind:
            size = len(block.get("data", "")) * 3 // 4
            return f"[{kind} {block.get('mimeType')}, {size} bytes; use --json to get it]"
        case _:
            return msgspec.json.encode(block).decode()
