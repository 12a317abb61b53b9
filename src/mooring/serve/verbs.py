"""What each verb of the façade does inside the daemon (or the library). Behind ``facade.Mooring``; knows no socket.

``invoke`` is what the control socket calls with names and values from outside: unknown verbs and parameters are
refused, everything else is typed by ``nouns`` and its neighbours.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from mooring import __version__
from mooring.errors import ConfigError, UpstreamProtocol
from mooring.nouns import InstanceRow, KeyRow, NewKey, PinRow, ReloadReport, Scope, StatusReport, ToolRow
from mooring.relay.indirect import by_alias, indirect, meant
from mooring.relay.table import Route
from mooring.relay.view import View
from mooring.serve.local_client import LocalRequest, LocalSession
from mooring.serve.rows import instance_rows
from mooring.wire import jsonrpc

if TYPE_CHECKING:
    from mooring.nouns_litellm import LiteLLMAccess, LiteLLMReport, LiteLLMStatus
    from mooring.nouns_registry import ActiveMount, ApprovalRow, EntryReport, EntryRow, SourceRow
    from mooring.serve.app import App
    from mooring.serve.catalog import Catalog
    from mooring.wire.session import Request

Heard = Callable[[str, Any], None]


class Verbs:
    """All verbs that need running parts."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._verbs: dict[str, Callable[..., Awaitable[Any]]] = {
            "status": self.status,
            "ps": self.ps,
            "tools": self.tools,
            "call": self.call,
            "logs": self.logs,
            "reload": self.reload,
            "restart": self.restart,
            "retry": self.retry,
            "stop": self.stop,
            "key_create": self.key_create,
            "key_list": self.key_list,
            "key_rotate": self.key_rotate,
            "key_revoke": self.key_revoke,
            "litellm_sync": self.litellm_sync,
            "litellm_status": self.litellm_status,
            "litellm_remove": self.litellm_remove,
            "litellm_access": self.litellm_access,
            "find": self.find,
            "catalog_refresh": self.catalog_refresh,
            "catalog_status": self.catalog_status,
            "catalog_show": self.catalog_show,
            "pins": self.pins,
            "pins_approve": self.pins_approve,
            "add": self.add,
            "exec": self.exec,
            "remove": self.remove,
            "active": self.active,
            "approvals": self.approvals,
            "approve": self.approve,
            "approval_revoke": self.approval_revoke,
            "lend": self.lend,
        }
        self._streaming = {"call", "logs", "catalog_refresh", "add", "exec", "lend"}

    async def invoke(self, verb: str, parameters: Mapping[str, Any], heard: Heard | None = None) -> Any:
        """Run a verb by name. Raises MooringError."""
        method = self._verbs.get(verb)
        if method is None:
            raise ConfigError(f"There is no verb {verb!r}; it may need a newer daemon: mooring stop, then mooring up.")
        given = dict(parameters)
        if verb in self._streaming:
            given["heard"] = heard
        try:
            call = method(**given)
        except TypeError as error:
            raise ConfigError(f"{verb}: {error}") from None
        try:
            return await call
        except msgspec.ValidationError as error:
            raise ConfigError(f"{verb}: {error}") from None

    async def add_functions(self, name: str, functions: Any, workspaces: Any = None) -> None:
        """Library only; see ``facade.Mooring.add_server``."""
        await self._app.add_functions(name, tuple(functions), None if workspaces is None else tuple(workspaces))

    def agents(self, handler: Any, models: Any) -> Any:
        """Library only; see ``facade.Mooring.agents``."""
        from mooring.serve.agents import agents

        return agents(self._app, handler, models)

    async def status(self) -> StatusReport:
        app = self._app
        return StatusReport(
            version=__version__,
            pid=os.getpid(),
            home=app.home.config if app.home else "",
            endpoint=app.endpoint,
            public_url=app.public_url,
            started_at=app.started_at,
            workspaces=tuple(app.plan.workspaces),
            config_error=app.config_error,
        )

    async def ps(self) -> list[InstanceRow]:
        from mooring.launch.usage import usage

        app = self._app
        running = (*app.pool.rows(), *app.spares.rows())
        rows = instance_rows(running, app.plan, app.listings, app.views, app.pins.waiting())
        rows = app.denials.marked(rows)
        # Of a container the process here is but the engine's client.
        pids = [row.pid for row in rows if row.pid is not None and row.container is None]
        used = usage(pids)
        return [
            msgspec.structs.replace(row, memory=used[row.pid].memory, processes=used[row.pid].processes)
            if row.pid in used
            else row
            for row in rows
        ]

    async def tools(self, workspace: str) -> list[ToolRow]:
        view = await self._listed(workspace)
        return [_tool_row(route) for route in view.tools.values()]

    async def call(
        self, workspace: str, tool: str, arguments: Any = None, heard: Heard | None = None, agreed: bool = False
    ) -> dict[str, Any]:
        self._there(workspace)
        params = jsonrpc.text({"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": "call"}})
        request = LocalRequest(LocalSession(workspace), "tools/call", params, heard)
        relay = self._app.relay
        agreement = nullcontext()
        if agreed is True:
            agreement = relay.methods.confirm.agreed(await self._meant(request, tool))
        with agreement:
            answer = await relay.handle(request)
        if answer.error is not None:
            error = jsonrpc.value(answer.error)
            raise UpstreamProtocol(f"{tool}: {error.get('message')}", code=error.get("code"), data=error.get("data"))
        return jsonrpc.value(answer.result or jsonrpc.EMPTY)

    async def _meant(self, request: LocalRequest, tool: str) -> Request:
        """The call that is made, also where ``registry_exec`` is to make it."""
        tools = (await self._listed(request.session.principal.workspace)).tools
        route = tools.get(tool)
        return meant(request, tools) if route is not None and indirect(route) else request

    async def logs(self, server: str, lines: int = 100, follow: bool = False, heard: Heard | None = None) -> list[str]:
        self._known(server)
        logs = self._app.logs
        last = logs.last(server, lines)
        if follow and heard is not None:
            for line in last:
                heard("line", line)
            with logs.following(server, lambda line: heard("line", line)):
                await asyncio.get_running_loop().create_future()  # until the asker goes away
        return last

    async def reload(self) -> ReloadReport:
        return await self._app.reload()

    async def restart(self, server: str) -> int:
        self._known(server)
        return self._app.pool.restart(server)

    async def retry(self, server: str) -> dict[str, Any]:
        self._known(server)
        self._app.pool.retry(server)
        self._app.looks.again(server)
        return {}

    async def stop(self) -> dict[str, Any]:
        self._app.stopping.set()
        return {}

    async def key_create(
        self,
        workspace: str,
        *,
        name: str = "",
        expires_at: float | None = None,
        scopes: Any = ("call", "list"),
        variant: str | None = None,
        tools: Any = (),
        replace: bool = False,
    ) -> NewKey:
        self._there(workspace)
        self._mounted(workspace, variant)
        return await self._app.keys.create(
            workspace,
            name,
            expires_at,
            msgspec.convert(scopes, tuple[Scope, ...]),
            variant,
            msgspec.convert(tools, tuple[str, ...]),
            replace=replace,
        )

    async def lend(self, heard: Heard | None = None) -> None:
        """Lend the servers of all agents to a process that runs them; see ``serve.borrowed``."""
        from mooring.serve.borrowed import lend

        if heard is not None:
            await lend(self._app, heard)

    def redact(self, secrets: Iterable[str]) -> None:
        """Library only: values that are to be seen nowhere."""
        for secret in secrets:
            self._app.redact.add(secret)

    async def key_list(self, workspace: str | None = None) -> list[KeyRow]:
        rows = self._app.keys.rows(workspace, self._app.plan.workspaces)
        if workspace is not None and not rows:  # with keys it is one that was there once
            self._there(workspace)
        return rows

    async def key_rotate(self, key_id: str) -> NewKey:
        return await self._app.keys.rotate(key_id)

    async def key_revoke(self, key_id: str) -> dict[str, Any]:
        await self._app.keys.revoke(key_id)
        return {}

    async def litellm_sync(self, dry_run: bool = False) -> LiteLLMReport:
        return await self._app.litellm.sync(self._app.offer(), dry_run=dry_run)

    async def litellm_status(self) -> LiteLLMStatus:
        return await self._app.litellm.status(self._app.offer())

    async def litellm_remove(self, dry_run: bool = False) -> LiteLLMReport:
        return await self._app.litellm.remove(self._app.offer(), dry_run=dry_run)

    async def litellm_access(self, workspace: str) -> LiteLLMAccess:
        self._there(workspace)
        return await self._app.litellm.access(self._app.offer(), workspace)

    async def find(self, **asked: Any) -> list[EntryRow]:
        from mooring.catalog.search import Question

        unknown = ", ".join(asked.keys() - set(Question.__struct_fields__))
        if unknown:
            raise ConfigError(f"find: unexpected {unknown}; there are: {', '.join(Question.__struct_fields__)}")
        return await self._catalog.find(msgspec.convert(asked, Question))

    async def catalog_refresh(self, sources: Any = (), force: bool = False, heard: Heard | None = None) -> Any:
        def progress(source: str, entries: int) -> None:
            if heard is not None:
                heard("progress", {"source": source, "entries": entries})

        return await self._catalog.refresh(msgspec.convert(sources, tuple[str, ...]), force, progress)

    async def catalog_status(self) -> list[SourceRow]:
        return await self._catalog.status()

    async def catalog_show(self, entry_id: str) -> EntryReport:
        return await self._catalog.show(entry_id)

    @property
    def _catalog(self) -> Catalog:
        return self._app.registry.catalog

    async def add(
        self,
        workspace: str,
        entry_id: str,
        prefix: str | None = None,
        settings: Any = None,
        heard: Heard | None = None,
    ) -> ActiveMount:
        def told(line: str) -> None:
            if heard is not None:
                heard("progress", {"message": line})

        given = msgspec.convert(settings or {}, dict[str, Any])
        return await self._app.registry.add(workspace, entry_id, prefix=prefix, settings=given, agent=False, told=told)

    async def exec(
        self, workspace: str, tool: str, arguments: Any = None, heard: Heard | None = None, agreed: bool = False
    ) -> dict[str, Any]:
        name = by_alias(tool, (await self._listed(workspace)).tools)
        return await self.call(workspace, name, arguments, heard, agreed)

    async def remove(self, workspace: str, what: str) -> ActiveMount:
        return await self._app.registry.remove(workspace, what)

    async def active(self, workspace: str | None = None) -> list[ActiveMount]:
        return self._app.registry.active(workspace)

    async def approvals(self) -> list[ApprovalRow]:
        return await self._app.registry.consent.rows()

    async def approve(self, approval_id: str) -> ApprovalRow:
        return await self._app.registry.consent.approve(approval_id)

    async def approval_revoke(self, approval_id: str) -> ApprovalRow:
        return await self._app.registry.revoke(approval_id)

    async def pins(self, server: str | None = None) -> list[PinRow]:
        return await self._app.pins.rows(self._variants(server))

    async def pins_approve(self, server: str, fingerprints: list[str]) -> list[PinRow]:
        return await self._app.approve(self._variants(server), fingerprints)

    def _variants(self, server: str | None) -> dict[str, str]:
        """Variant id to server, of one server or of all."""
        if server is not None:
            self._known(server)
        plan = self._app.plan
        return {id: each.server for id, each in plan.variants.items() if server in (None, each.server)}

    def _known(self, server: str) -> None:
        names = {variant.server for variant in self._app.plan.variants.values()}
        if server not in names:
            raise ConfigError(f'There is no server "{server}". Servers: {", ".join(sorted(names)) or "none"}.')

    def _there(self, workspace: str) -> None:
        if workspace not in self._app.plan.workspaces:
            known = ", ".join(self._app.plan.workspaces) or "none"
            raise ConfigError(f'There is no workspace "{workspace}". Workspaces: {known}.')

    def _mounted(self, workspace: str, variant: str | None) -> None:
        known = [mount.variant for mount in self._app.plan.workspaces[workspace].mounts]
        if variant is not None and variant not in known:
            raise ConfigError(
                f'The workspace "{workspace}" has no variant "{variant}". Its variants: {", ".join(known) or "none"}.'
            )

    async def _listed(self, workspace: str) -> View:
        """The view of the local user, after first looks had their time."""
        app = self._app
        self._there(workspace)
        principal = LocalSession(workspace).principal
        view = app.views.of(principal)
        if view.missing:
            await app.looks.wait(mount.variant for mount in view.mounts)
            view = app.views.of(principal)
        return view


class _Listed(msgspec.Struct, rename="camel"):
    description: str = ""
    input_schema: dict[str, Any] = {}
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] = {}


def _tool_row(route: Route) -> ToolRow:
    try:
        listed = msgspec.convert(jsonrpc.value(route.raw), _Listed)
    except msgspec.ValidationError:
        listed = _Listed()
    return ToolRow(
        name=route.advertised,
        server=route.mount.server,
        upstream=route.upstream,
        description=listed.description,
        input_schema=listed.input_schema,
        output_schema=listed.output_schema,
        annotations=listed.annotations,
    )
