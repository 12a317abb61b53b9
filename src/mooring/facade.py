"""Class Mooring: every verb once. The library, the control socket and the command line are thin faces of it.

``async with mooring.open(config) as m`` runs the parts in this process; ``async with mooring.connect() as m`` attaches
to the daemon. Both give the same object; only functions of this process can be added in the first case alone.
Agents run in this process in both cases, and have the daemon's servers in the second.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from mooring.errors import ConfigError
from mooring.nouns import InstanceRow, KeyRow, NewKey, PinRow, ReloadReport, StatusReport, ToolRow
from mooring.nouns_litellm import LiteLLMAccess, LiteLLMReport, LiteLLMStatus
from mooring.nouns_registry import ActiveMount, ApprovalRow, EntryReport, EntryRow, RefreshReport, SourceRow

if TYPE_CHECKING:
    from mooring.agents.handler import Handler
    from mooring.agents.pool import AgentPool
    from mooring.config.home import Home

T = TypeVar("T")
Heard = Callable[[str, Any], None]
"""Called with (what, data) for each thing that a streaming verb reports before its result."""


class Control(Protocol):
    """Carries a verb to where it runs: into this process, or to the daemon."""

    async def invoke(self, verb: str, parameters: Mapping[str, Any], heard: Heard | None = None) -> Any: ...

    def agents(self, handler: Handler, models: Mapping[str, Any]) -> AbstractAsyncContextManager[AgentPool]: ...


class Tool:
    """One tool of a workspace: fit to be registered in any host."""

    def __init__(self, row: ToolRow, mooring: Mooring, workspace: str) -> None:
        self.name = row.name
        self.server = row.server
        self.description = row.description
        self.input_schema = row.input_schema
        self.output_schema = row.output_schema
        self.annotations = row.annotations
        self._mooring = mooring
        self._workspace = workspace

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def call(self, **arguments: Any) -> dict[str, Any]:
        """Call it; see ``Mooring.call``."""
        return await self._mooring.call(self._workspace, self.name, arguments)


class Mooring:
    """All verbs of Mooring. Every method may raise MooringError."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def _ask(self, verb: str, kind: type[T], heard: Heard | None = None, /, **parameters: Any) -> T:
        return msgspec.convert(await self._control.invoke(verb, parameters, heard), kind)

    async def status(self) -> StatusReport:
        """The daemon at a glance."""
        return await self._ask("status", StatusReport)

    async def ps(self) -> list[InstanceRow]:
        """What runs, and what could."""
        return await self._ask("ps", list[InstanceRow])

    async def tools(self, workspace: str) -> list[Tool]:
        """The tools of a workspace in configuration order."""
        return [Tool(row, self, workspace) for row in await self.tool_rows(workspace)]

    async def tool_rows(self, workspace: str) -> list[ToolRow]:
        """The tools of a workspace as plain data."""
        return await self._ask("tools", list[ToolRow], workspace=workspace)

    async def call(
        self,
        workspace: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Heard | None = None,
        *,
        agreed: bool = False,
    ) -> dict[str, Any]:
        """Call a tool; the result is what the server said (``content``, ``isError``, ``structuredContent``).

        ``heard`` gets ("progress", params) and ("log", params) while it runs. ``agreed``: a person was asked about this
        very call and agreed to it; without that a tool under ``confirm`` answers with an error of the kind
        "unconfirmed". A JSON-RPC error of the server raises UpstreamProtocol."""
        given: dict[str, Any] = {"workspace": workspace, "tool": tool, "arguments": dict(arguments or {})}
        return await self._ask("call", dict[str, Any], heard, **given, agreed=agreed)

    async def logs(self, server: str, lines: int = 100, follow: bool = False, heard: Heard | None = None) -> list[str]:
        """The last lines that the instances of a server wrote to stderr. With ``follow`` it goes on, handing new lines
        to ``heard`` as ("line", text), until it is cancelled."""
        return await self._ask("logs", list[str], heard, server=server, lines=lines, follow=follow)

    async def reload(self) -> ReloadReport:
        """Read the configuration again and apply what changed; an invalid one changes nothing."""
        return await self._ask("reload", ReloadReport)

    async def restart(self, server: str) -> int:
        """Start the running instances of a server anew, and those that back off without waiting; how many that were."""
        return await self._ask("restart", int, server=server)

    async def retry(self, server: str) -> None:
        """Something that kept a server from serving is gone, such as a missing login: try again without waiting."""
        await self._ask("retry", dict[str, Any], server=server)

    async def stop(self) -> None:
        """End the daemon."""
        await self._ask("stop", dict[str, Any])

    async def key_create(
        self,
        workspace: str,
        *,
        name: str = "",
        expires_at: float | None = None,
        scopes: Sequence[str] = ("call", "list"),
        variant: str | None = None,
        tools: Sequence[str] = (),
        replace: bool = False,
    ) -> NewKey:
        """Make a key; its value is shown this once. ``expires_at``: epoch seconds."""
        return await self._ask(
            "key_create",
            NewKey,
            workspace=workspace,
            name=name,
            expires_at=expires_at,
            scopes=list(scopes),
            variant=variant,
            tools=list(tools),
            replace=replace,
        )

    async def key_list(self, workspace: str | None = None) -> list[KeyRow]:
        """Keys, without their values."""
        return await self._ask("key_list", list[KeyRow], workspace=workspace)

    async def key_rotate(self, key_id: str) -> NewKey:
        """Give a key a new value; the old one ends at once."""
        return await self._ask("key_rotate", NewKey, key_id=key_id)

    async def key_revoke(self, key_id: str) -> None:
        """End a key at once, also for open sessions."""
        await self._ask("key_revoke", dict[str, Any], key_id=key_id)

    async def find(
        self,
        query: str = "",
        *,
        categories: Sequence[str] = (),
        tags: Sequence[str] = (),
        sources: Sequence[str] = (),
        official_only: bool = False,
        featured_only: bool = False,
        limit: int = 20,
    ) -> list[EntryRow]:
        """Servers of the catalog that answer ``query``, best first; without one the best known. Within a filter any
        may match, all filters must. Raises ConfigError for a filter that nothing can match."""
        return await self._ask(
            "find",
            list[EntryRow],
            query=query,
            categories=list(categories),
            tags=list(tags),
            sources=list(sources),
            official_only=official_only,
            featured_only=featured_only,
            limit=limit,
        )

    async def catalog_refresh(
        self, sources: Sequence[str] = (), *, force: bool = False, heard: Heard | None = None
    ) -> list[RefreshReport]:
        """Read these sources of the catalog, or all; ``force``: also those that are still fresh. ``heard`` gets
        ("progress", {"source", "entries"}). A source that fails says so in its report."""
        return await self._ask("catalog_refresh", list[RefreshReport], heard, sources=list(sources), force=force)

    async def catalog_status(self) -> list[SourceRow]:
        """The sources of the catalog: what each has, and how its last refresh went."""
        return await self._ask("catalog_status", list[SourceRow])

    async def catalog_show(self, entry_id: str) -> EntryReport:
        """All that the catalog knows about an entry. Raises ConfigError when there is none."""
        return await self._ask("catalog_show", EntryReport, entry_id=entry_id)

    async def pins(self, server: str | None = None) -> list[PinRow]:
        """The pinned tools of one server or of all, with what changed since."""
        return await self._ask("pins", list[PinRow], server=server)

    async def pins_approve(self, server: str, fingerprints: Sequence[str]) -> list[PinRow]:
        """Pin those of a server's tools that are as ``pins`` showed them, by their fingerprints; what was approved. A
        tool that has changed again since goes on waiting."""
        return await self._ask("pins_approve", list[PinRow], server=server, fingerprints=list(fingerprints))

    async def add(
        self,
        workspace: str,
        entry_id: str,
        *,
        prefix: str | None = None,
        settings: Mapping[str, Any] | None = None,
        heard: Heard | None = None,
    ) -> ActiveMount:
        """Start an entry of the catalog and offer its tools in a workspace, until it is removed. ``settings``: what
        the entry declares, no secrets. ``heard`` gets ("progress", {"message"}). Nothing is left when it fails."""
        return await self._ask(
            "add",
            ActiveMount,
            heard,
            workspace=workspace,
            entry_id=entry_id,
            prefix=prefix,
            settings=dict(settings or {}),
        )

    async def exec(
        self,
        workspace: str,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        heard: Heard | None = None,
        *,
        agreed: bool = False,
    ) -> dict[str, Any]:
        """Like ``call``; ``tool`` may also have the form ``mcp_<prefix>_<tool>``."""
        given: dict[str, Any] = {"workspace": workspace, "tool": tool, "arguments": dict(arguments or {})}
        return await self._ask("exec", dict[str, Any], heard, **given, agreed=agreed)

    async def remove(self, workspace: str, what: str) -> ActiveMount:
        """End what was added, by entry id or prefix; how it was before."""
        return await self._ask("remove", ActiveMount, workspace=workspace, what=what)

    async def active(self, workspace: str | None = None) -> list[ActiveMount]:
        """What was added to a workspace, or to any, and how it is now."""
        return await self._ask("active", list[ActiveMount], workspace=workspace)

    async def approvals(self) -> list[ApprovalRow]:
        """What agents asked to run: first what waits for a person, then what was approved."""
        return await self._ask("approvals", list[ApprovalRow])

    async def approve(self, approval_id: str) -> ApprovalRow:
        """Let an agent run what it asked for: this very command, in this workspace."""
        return await self._ask("approve", ApprovalRow, approval_id=approval_id)

    async def approval_revoke(self, approval_id: str) -> ApprovalRow:
        """Take an approval back, and end what was added with it."""
        return await self._ask("approval_revoke", ApprovalRow, approval_id=approval_id)

    async def litellm_sync(self, *, dry_run: bool = False) -> LiteLLMReport:
        """Make LiteLLM agree with the configuration; with ``dry_run`` only tell what that would change. Raises
        ConfigError without ``[litellm]``, Unavailable when LiteLLM does not do its part."""
        return await self._ask("litellm_sync", LiteLLMReport, dry_run=dry_run)

    async def litellm_status(self) -> LiteLLMStatus:
        """How the last sync with LiteLLM went, and what LiteLLM has since; asks only Mooring."""
        return await self._ask("litellm_status", LiteLLMStatus)

    async def litellm_remove(self, *, dry_run: bool = False) -> LiteLLMReport:
        """Take out of LiteLLM what Mooring put there, and leave it out until the next ``litellm_sync`` or start."""
        return await self._ask("litellm_remove", LiteLLMReport, dry_run=dry_run)

    async def litellm_access(self, workspace: str) -> LiteLLMAccess:
        """LiteLLM's endpoint and the key of a workspace there. Raises ConfigError when it has none."""
        return await self._ask("litellm_access", LiteLLMAccess, workspace=workspace)

    async def add_server(
        self, name: str, *, functions: Sequence[Callable[..., Any]], workspaces: Sequence[str] | None = None
    ) -> None:
        """Offer Python functions of this process as a server, in these workspaces or in all. Only after ``open``."""
        add = getattr(self._control, "add_functions", None)
        if add is None:
            raise ConfigError("Functions can be added only to a Mooring that was opened in this process.")
        await add(name, functions, workspaces)

    @asynccontextmanager
    async def agents(
        self, handler: Handler | None = None, models: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[AgentPool]:
        """The agents of the configuration, to run them in this process; after ``connect`` with the servers of the
        daemon, which are shared and audited there.

        ``handler`` answers what they and their servers ask; without one it is declined. ``models``: models of native
        agents that were made here, by the name that ``model`` gives them."""
        from mooring.agents.handler import Handler as Answers

        async with self._control.agents(handler or Answers(), models or {}) as pool:
            yield pool


@asynccontextmanager
async def open(config: str | Path | Mapping[str, Any]) -> AsyncGenerator[Mooring, None]:
    """Run Mooring in this process: no port, no lock, nothing written. ``config``: a TOML file, or its content as a
    mapping. Raises ConfigError."""
    from mooring.serve.library import opened

    async with opened(config) as control:
        yield Mooring(control)


@asynccontextmanager
async def connect(home: Home | None = None) -> AsyncGenerator[Mooring, None]:
    """Attach to the running daemon. Raises DaemonAbsent."""
    from mooring.serve.control_client import connected

    async with connected(home) as control:
        yield Mooring(control)
