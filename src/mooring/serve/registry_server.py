"""The registry as an MCP server of a workspace: looks like any other to the relay, runs in this process.

Speaks the modern era, so that questions are results (``input_required``) and nothing waits in between; the relay
translates for legacy clients. Source: MCP 2026-07-28 "Tools", "Multi round-trip requests", "Elicitation".
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mooring import __version__
from mooring.catalog.errors import MissingInput
from mooring.catalog.search import Question
from mooring.errors import ConfigError, MooringError
from mooring.nouns import Facts
from mooring.nouns_registry import ActiveMount, EntryRow, Outcome
from mooring.relay.refusals import tool_failure
from mooring.serve.first_start import Told
from mooring.serve.registry import Registry
from mooring.serve.registry_tools import (
    TOOLS,
    Active,
    Add,
    Arguments,
    ConfigSet,
    Docs,
    Exec,
    Find,
    LaunchStdio,
    List,
    Refresh,
    Remove,
    Status,
)
from mooring.wire import eras, jsonrpc
from mooring.wire.connection import Caller
from mooring.wire.jsonrpc import Answer

if TYPE_CHECKING:
    from mooring.catalog.settings import Wanted
    from mooring.serve.app import App

INSTRUCTIONS = (
    "Tools that are missing here can be added: look for a server with registry_find, add it with registry_add, call "
    "its tools by their names or with registry_exec, and take it away with registry_remove."
)
_ANSWERED = "settings"
"""Name of the one question that is asked."""
_TYPES = {"number": "number", "boolean": "boolean"}


class _Repository(msgspec.Struct, frozen=True):
    url: str = ""


class _About(msgspec.Struct, frozen=True):
    """Of an entry, what is shown of it."""

    repository: _Repository = _Repository()


Said = tuple[str, Any]
"""A result as text, and as data."""


class RegistryConnection:
    """Implements ``wire.connection.Connection`` for one workspace."""

    facts = Facts(
        "modern",
        eras.MODERN_VERSIONS[0],
        b'{"tools":{}}',
        jsonrpc.text({"name": "mooring-registry", "version": __version__}),
        INSTRUCTIONS,
    )

    def __init__(self, app: App, workspace: str) -> None:
        self._app = app
        self._workspace = workspace
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request(self, method: str, params: bytes, caller: Caller | None = None) -> Answer:
        """Answer ``tools/list``, ``tools/call`` and ``server/discover``."""
        match method:
            case "tools/list":
                listed = [tool.listed for tool in TOOLS.values()]
                return _complete({"tools": listed, "ttlMs": 0, "cacheScope": "private"})
            case "tools/call":
                return await self._call(params, caller)
            case "server/discover":
                return _complete({"supportedVersions": eras.MODERN_VERSIONS, "capabilities": {"tools": {}}})
            case _:
                return jsonrpc.failure(jsonrpc.METHOD_NOT_FOUND, f"the registry has no {method}")

    def notify(self, method: str, params: bytes) -> None:
        """Nothing to tell."""

    async def _call(self, params: bytes, caller: Caller | None) -> Answer:
        parts = jsonrpc.members(params)
        tool = TOOLS.get(jsonrpc.string(parts.get("name")) or "")
        if tool is None:
            return jsonrpc.failure(jsonrpc.INVALID_PARAMS, "the registry has no such tool")
        try:
            arguments = msgspec.json.decode(parts.get("arguments", jsonrpc.EMPTY), type=tool.arguments)
            text, data = await self._done(arguments, params, _teller(params, caller))
        except MissingInput as error:
            return _question(error, params) or tool_failure(error, "modern")
        except msgspec.ValidationError as error:
            return tool_failure(ConfigError(f"registry_{tool.name}: {error}"), "modern")
        except MooringError as error:
            return tool_failure(error, "modern")
        return _complete({"content": [{"type": "text", "text": text}], "structuredContent": data})

    async def _done(self, arguments: Arguments, params: bytes, told: Told) -> Said:
        registry, workspace = self._app.registry, self._workspace
        match arguments:
            case Find():
                return await _found(registry, msgspec.convert(msgspec.structs.asdict(arguments), Question))
            case List():
                sources = () if arguments.source == "all" else (arguments.source,)
                return await _found(registry, Question(query="", sources=sources, limit=arguments.limit))
            case Docs():
                return await _docs(registry, arguments.entry_id)
            case Add():
                mount = await registry.add(
                    workspace,
                    arguments.entry_id,
                    prefix=arguments.prefix,
                    editor=arguments.editor,
                    settings={**arguments.settings, **_answers(params)},
                    told=told,
                )
                return _activated(registry, mount)
            case LaunchStdio():
                mount = await registry.launch(
                    workspace, arguments.command, arguments.prefix, arguments.args, arguments.env, told=told
                )
                return _activated(registry, mount)
            case ConfigSet():
                environment = {**arguments.environment, **_answers(params)}
                mount = await registry.configure(workspace, arguments.entry_id, environment, told=told)
                return f"Set for {mount.name}: {', '.join(environment)}. It runs with it now.", mount
            case Remove():
                mount = await registry.remove(workspace, arguments.entry_id)
                return f"Successfully deactivated: {mount.name}", {"mount": mount}
            case Active():
                return _active(registry.active(workspace))
            case Status():
                return await self._status(registry)
            case Refresh():
                return await _refreshed(registry, arguments.source, told)
            case Exec():
                raise ConfigError("registry_exec cannot call itself: name the tool that is meant.")
            case _:
                raise AssertionError(arguments)

    async def _status(self, registry: Registry) -> Said:
        sources = await registry.catalog.status()
        mounts = registry.active(self._workspace)
        running = sum(mount.state == "ready" for mount in mounts)
        lines = [f"Workspace {self._workspace}: {len(mounts)} added, {running} running."]
        lines += [
            f"- {row.name}: {row.entries} entries, {row.state}{f' ({row.error})' if row.error else ''}"
            + (", trusted" if row.trusted else "")
            + (f", {len(row.problems)} records left out: {row.problems[0]}" if row.problems else "")
            for row in sources
        ]
        data = {"version": __version__, "workspace": self._workspace, "active": len(mounts), "running": running}
        return "\n".join(lines), {**data, "sources": sources}


async def _found(registry: Registry, question: Question) -> Said:
    rows = await registry.catalog.find(question)
    if not rows:
        return "Nothing was found. Try other words, or fewer filters.", {"results": []}
    return "\n".join(_entry_line(row) for row in rows), {"results": rows}


def _entry_line(row: EntryRow) -> str:
    marks = [*(["needs " + ", ".join(row.needs)] if row.needs else []), *([] if row.trusted else ["needs approval"])]
    about = row.description.partition("\n")[0]
    return f"- {row.id} ({row.name}): {about}" + (f" [{'; '.join(marks)}]" if marks else "")


async def _docs(registry: Registry, entry_id: str) -> Said:
    report = await registry.catalog.show(entry_id.strip().lower())
    row = report.row
    lines = [f"{row.name} ({row.id})", row.description, ""]
    lines.append(f"Runs as: {', '.join(row.launch) or 'nothing that Mooring starts'}")
    lines.append(f"Needs: {', '.join(row.needs) or 'nothing'}")
    if row.tools:
        lines.append(f"Tools: {', '.join(row.tools)}")
    if url := msgspec.convert(report.entry, _About).repository.url:
        lines.append(f"Source code: {url}")
    if report.gone:
        lines.append("Its source does not have it any more.")
    return "\n".join(lines), report


def _activated(registry: Registry, mount: ActiveMount) -> Said:
    names = registry.names(mount)
    text = f"Successfully activated: {mount.name}\nTools: {', '.join(names) or 'none'}"
    return "\n".join((text, *mount.notes)), {"mount": mount, "tools": names}


def _active(mounts: Sequence[ActiveMount]) -> Said:
    lines = [
        f"- {mount.entry_id} ({mount.name}) as {mount.prefix}: {mount.state}"
        + (f", {mount.reason}" if mount.reason else "")
        + (f", container {mount.container_id}" if mount.container_id else "")
        + f", {len(mount.tools)} tools"
        for mount in mounts
    ]
    return "\n".join(lines) or "Nothing was added here yet.", {"mounts": mounts}


async def _refreshed(registry: Registry, source: str, told: Told) -> Said:
    def progress(name: str, entries: int) -> None:
        told(f"{name}: {entries} entries")

    reports = await registry.catalog.refresh(() if source == "all" else (source,), True, progress)
    lines = [f"- {report.name}: {_outcome(report.outcome, report.error, report.entries)}" for report in reports]
    return "\n".join(lines), {"sources": reports}


def _outcome(outcome: Outcome, error: str, entries: int) -> str:
    return f"failed: {error}" if outcome == "failed" else f"{outcome}, {entries} entries"


def _complete(result: dict[str, Any]) -> Answer:
    return Answer(result=jsonrpc.text({**result, "resultType": "complete"}))


def _teller(params: bytes, caller: Caller | None) -> Told:
    """Sends each line as progress, to a caller who wants it."""
    token = jsonrpc.fields(jsonrpc.fields(params).get("_meta")).get("progressToken")
    if caller is None or token is None:
        return _untold
    count = itertools.count(1)
    heard: Callable[[str, bytes], None] = caller.heard

    def told(line: str) -> None:
        progress = {"progressToken": token, "progress": next(count), "message": line}
        heard("notifications/progress", jsonrpc.text(progress))

    return told


def _untold(_: str) -> None:
    """Nobody listens."""


def _question(error: MissingInput, params: bytes) -> Answer | None:
    """Ask the user for the settings that are missing, if the client shows forms and they were not asked for before.
    Secrets are never asked for in a form, which the client and its model may see: the form says what is to be run."""
    meta = jsonrpc.fields(jsonrpc.fields(params).get("_meta"))
    declared = jsonrpc.fields(meta.get(eras.CLIENT_CAPABILITIES_KEY)).get("elicitation")
    modes = jsonrpc.fields(declared)
    able = declared is not None and (not modes or "form" in modes)
    settings = [one for one in error.wanted if not one.secret]
    if not able or not settings or "inputResponses" in jsonrpc.fields(params):
        return None
    schema = {
        "type": "object",
        "properties": {one.name: _property(one) for one in settings},
        "required": [one.name for one in settings],
    }
    asked = {"mode": "form", "message": _request(error), "requestedSchema": schema}
    requests = {_ANSWERED: {"method": "elicitation/create", "params": asked}}
    return Answer(result=jsonrpc.text({"resultType": "input_required", "inputRequests": requests}))


def _request(error: MissingInput) -> str:
    lines = [f"{error.entry.name} ({error.entry.id}) needs some settings before it is started."]
    lines += [
        f"It also needs the secret {one.name}, which is not asked for here. In a terminal: mooring secret set "
        f"{one.secret_name}"
        for one in error.wanted
        if one.secret
    ]
    return "\n".join(lines)


def _property(one: Wanted) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _TYPES.get(one.format, "string"), "title": one.name}
    if about := ". ".join(
        filter(None, (one.description.rstrip("."), one.placeholder and f"Such as {one.placeholder}"))
    ):
        found["description"] = about
    if one.choices:
        found["enum"] = list(one.choices)
    return found


def _answers(params: bytes) -> dict[str, Any]:
    """What the user filled in, if this is the second round."""
    responses = jsonrpc.fields(jsonrpc.fields(params).get("inputResponses"))
    answer = jsonrpc.fields(responses.get(_ANSWERED))
    if jsonrpc.string(answer.get("action")) != "accept":
        return {}
    return msgspec.json.decode(answer.get("content", jsonrpc.EMPTY), type=dict[str, Any])
