"""Servers as the Agent Client Protocol has them, and what an agent cannot take. Pure; used by ``agents.acp``.

An agent that gets an entry it does not understand drops it without a word, so nothing is left to luck here: all members
are there, lists also when they are empty, and commands are absolute. Source: ACP v1 ``session/new``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from acp.schema import AcpMcpServer, EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio, SseMcpServer

from mooring.config.plan import Direct
from mooring.config.plan_servers import Process, Remote

SERVER = "mooring"
"""What Mooring is called in the program."""
Server = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def mooring(argv: tuple[str, ...], env: dict[str, str]) -> McpServerStdio:
    """Mooring as a command: every agent takes those, and no key is in it that an agent could put on a command line of
    its own or into a file."""
    program, *args = argv
    return McpServerStdio(name=SERVER, command=program, args=args, env=_env(env))


def direct(server: Direct, absolute: Callable[[str], str]) -> Server:
    """A server that the agent connects to itself; ``absolute`` finds a program."""
    launch = server.launch
    if isinstance(launch, Process):
        program, *args = launch.argv
        return McpServerStdio(name=server.prefix, command=absolute(program), args=args, env=_env(launch.env))
    if launch.transport == "sse":
        return SseMcpServer(type="sse", name=server.prefix, url=launch.url, headers=_headers(launch.headers))
    return HttpMcpServer(type="http", name=server.prefix, url=launch.url, headers=_headers(launch.headers))


def beyond(servers: tuple[Direct, ...], *, http: bool, sse: bool) -> tuple[str, ...]:
    """Those that an agent with these capabilities cannot take; any takes programs."""
    able = {"http": http, "sse": sse}
    return tuple(s.server for s in servers if isinstance(s.launch, Remote) and not able[s.launch.transport])


def named(title: str, offered: frozenset[str]) -> str:
    """The tool of Mooring that an agent means by the title of a call; "" when it is none of them. Only the very forms
    that agents were seen to use: a title can be anything that a model writes."""
    for form in ("mcp__mooring__{}", "{} (mooring MCP Server)", "mcp.mooring.{}", "mooring/{}", "mooring_{}", "{}"):
        front, _, back = form.partition("{}")
        name = title.removeprefix(front).removesuffix(back)
        if name in offered and title == form.format(name):
            return name
    return ""


def told(title: str, given: Mapping[str, Any], offered: frozenset[str]) -> str:
    """The same for codex-acp, which has one kind for commands and for calls of servers: by what it alone writes as the
    input of the latter. A command has other members, whatever a model writes into it."""
    ours = set(given) == {"server", "tool", "arguments"} and given["server"] == SERVER and given["tool"] in offered
    return given["tool"] if ours and title == f"mcp.{SERVER}.{given['tool']}" else ""


def _env(env: dict[str, str]) -> list[EnvVariable]:
    return [EnvVariable(name=name, value=value) for name, value in env.items()]


def _headers(headers: dict[str, str]) -> list[HttpHeader]:
    return [HttpHeader(name=name, value=value) for name, value in headers.items()]
