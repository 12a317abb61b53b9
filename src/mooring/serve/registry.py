"""Add, use and remove servers while the daemon runs: the flows behind the registry's tools and ``mooring add``.

    add = look up, adopt, consent, start, list, keep, mount          remove = forget, unmount, end

A server is started before it is mounted, so that a failure leaves nothing behind; it is kept before it is mounted, so
that a daemon that is killed in between restores it. Imported when a verb or a tool first needs it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mooring.catalog.adopt import Adoption, adopt, default_prefix
from mooring.catalog.entry import Entry, Launch
from mooring.catalog.errors import AlreadyActive, MissingInput, NeedsApproval, NotActive, PrefixTaken
from mooring.catalog.fetching import fetching
from mooring.config.names import prefix_fault
from mooring.config.plan import Variant, Workspace
from mooring.config.plan_servers import Process, SecretRef
from mooring.errors import ConfigError, MooringError
from mooring.launch.aside import aside
from mooring.launch.environment import child_environment
from mooring.nouns import InstanceRow, Listing
from mooring.nouns_registry import ActiveMount, ApprovalRow
from mooring.relay.table import advertised
from mooring.serve import mounts
from mooring.serve.catalog import Catalog
from mooring.serve.consent import COMMAND, Consent, Wish, free
from mooring.serve.first_start import Told, ended, listed, trial
from mooring.serve.mounts import Record
from mooring.serve.rows import instance_rows
from mooring.tasks import finish

if TYPE_CHECKING:
    from mooring.serve.app import App

MASK = "****"
PROGRAMS: Mapping[Launch, tuple[str, ...]] = {
    "container": ("podman", "docker"),
    "npm": ("npx",),
    "pypi": ("uvx",),
}


class Registry:
    """One for a daemon or library."""

    def __init__(self, app: App, catalog: Catalog) -> None:
        self.catalog = catalog
        self.consent = Consent(app.store, app.events)
        self._app = app
        self._busy: set[tuple[str, str]] = set()
        """(workspace, entry id or prefix) that is being added."""
        # To look at what is there and to change it is one thing: what is being removed is there until that is written.
        self._changing = asyncio.Lock()

    async def add(
        self,
        workspace: str,
        entry_id: str,
        *,
        prefix: str | None = None,
        editor: str | None = None,
        settings: Mapping[str, Any] | None = None,
        agent: bool = True,
        told: Told = lambda _: None,
    ) -> ActiveMount:
        """Start an entry of the catalog and mount it. ``agent``: no person asks for it, so it needs consent.

        Raises MooringError, of another kind for each step: ``config`` (unknown workspace, setting or editor),
        ``unknown_entry``, ``already_active``, ``not_launchable``, ``needs_approval``, ``missing_input``,
        ``prefix_taken``, ``launch_missing``, ``pull_failed``, ``start_failed``, ``timed_out``. Nothing is left then."""
        self._room(workspace)
        if editor is not None:
            from mooring.export.clients import find

            find(editor)
        entry = await self._entry(entry_id)
        if (there := self._app.additions.get(workspace, entry.id)) is not None:
            raise AlreadyActive(
                f'"{entry.id}" is active already, as "{there.prefix}": call its tools, or remove it first.'
            )
        adoption = await self._adopted(entry, settings or {}, prefix)
        record = self._record(workspace, entry, adoption)
        if adoption.missing:  # first: what is approved has to be complete
            raise MissingInput(entry, adoption.missing, adoption.settings)
        if agent:
            record = await self._consented(record, entry.source)
        mount = await self._activated(record, told)
        return await self._in_editor(mount, editor)

    async def launch(
        self,
        workspace: str,
        command: str,
        prefix: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        *,
        told: Told = lambda _: None,
    ) -> ActiveMount:
        """Start a free command, which the configuration or a person has to allow. Raises as ``add`` does."""
        self._room(workspace)
        if fault := prefix_fault(prefix):
            raise ConfigError(fault)
        entry_id = f"command:{prefix}"
        if self._app.additions.get(workspace, entry_id) is not None:
            raise AlreadyActive(f'A command is active as "{prefix}" already: call its tools, or remove it first.')
        argv = (command, *args)
        launch = Process(argv=argv, env=dict(env or {}), fetch=fetching(argv))
        record = Record(workspace=workspace, entry_id=entry_id, name=prefix, prefix=prefix, launch=launch)
        record = await self._consented(record, COMMAND)
        return await self._activated(record, told)

    async def configure(
        self,
        workspace: str,
        what: str,
        environment: Mapping[str, str],
        *,
        agent: bool = True,
        told: Told = lambda _: None,
    ) -> ActiveMount:
        """Set variables of an active server, which is started anew with them before the old one goes. Only what the
        entry declares and is no secret. Raises as ``add`` does; nothing changed then."""
        old = self._find(workspace, what)
        if isinstance(old.launch, Process) and old.entry_id.startswith("command:"):
            launch = msgspec.structs.replace(old.launch, env={**old.launch.env, **environment})
            new = msgspec.structs.replace(old, launch=launch, environment={**old.environment, **environment})
            source = COMMAND
        else:
            entry = await self._entry(old.entry_id)
            adoption = await self._adopted(entry, {**old.settings, **environment}, old.prefix)
            if adoption.missing:
                raise MissingInput(entry, adoption.missing, adoption.settings)
            new, source = self._record(workspace, entry, adoption), entry.source
        if agent:
            new = await self._consented(new, source)
        return await self._activated(new, told, old)

    async def remove(self, workspace: str, what: str) -> ActiveMount:
        """End what was added, by entry id or prefix; how it was. Raises NotActive and StoreError."""
        async with self._changing:
            record = self._find(workspace, what)
            before = self.row(record)
            await finish(self._forgotten(record))
        await ended(self._app, record.variant)
        return before

    async def _forgotten(self, record: Record) -> None:
        await self._app.additions.drop(record)
        await self._app.adjust()

    async def revoke(self, id: str) -> ApprovalRow:
        """Take an approval back, and end what was added with it."""
        revoked: list[ApprovalRow] = []

        async def taken_back() -> None:
            revoked.append(await self.consent.revoke(id))
            for record in self._app.additions.records():
                if record.approval == id:
                    with suppress(NotActive):  # somebody else removed it meanwhile
                        await self.remove(record.workspace, record.entry_id)

        await finish(taken_back())
        return revoked[0]

    def active(self, workspace: str | None = None) -> list[ActiveMount]:
        """What was added to a workspace, or to any."""
        return [self.row(record) for record in self._app.additions.records(workspace)]

    def names(self, mount: ActiveMount) -> list[str]:
        """The tools of a mount as they are called here."""
        return [advertised(mount.prefix, tool) for tool in mount.tools]

    def row(self, record: Record) -> ActiveMount:
        """A mount, and how it is now."""
        app = self._app
        row, reason = self._instance(record)
        variant = app.plan.variants.get(record.variant)
        listing = app.listings.get(variant) if variant else None
        env: Mapping[str, str] = getattr(record.launch, "env", {})
        secrets: Mapping[str, SecretRef] = getattr(record.launch, "secrets", {})
        return ActiveMount(
            entry_id=record.entry_id,
            name=record.name,
            workspace=record.workspace,
            prefix=record.prefix,
            server=record.server,
            state=row.state if row else "stopped",
            container_id=row.container.partition(":")[2] if row and row.container else None,
            environment={**dict.fromkeys(env, MASK), **{name: str(ref) for name, ref in secrets.items()}},
            tools=tuple(tool.name for tool in listing.tools) if listing else record.tools,
            mounted_at=record.mounted_at,
            settings={name: MASK if name in env else value for name, value in record.settings.items()},
            reason=reason,
            pid=row.pid if row else None,
            last_error=row.last_error if row else "",
            approval=record.approval,
        )

    # steps of an add

    def _room(self, workspace: str) -> Workspace:
        rooms = self._app.plan.workspaces
        if workspace not in rooms:
            raise ConfigError(f'There is no workspace "{workspace}". Workspaces: {", ".join(rooms) or "none"}.')
        return rooms[workspace]

    async def _entry(self, entry_id: str) -> Entry:
        return (await self.catalog.copies(entry_id.strip().lower()))[0].entry

    async def _adopted(self, entry: Entry, settings: Mapping[str, Any], prefix: str | None) -> Adoption:
        def adopted() -> Adoption:
            path = child_environment({}, {}, os.environ)["PATH"]  # where they are looked for when it starts
            able: list[Launch] = [
                way for way, programs in PROGRAMS.items() if any(shutil.which(name, path=path) for name in programs)
            ]

            def has_secret(name: str) -> bool:
                return self._app.secrets.fingerprint(SecretRef("store", name)) is not None

            return adopt(entry, settings, able=[*able, "remote"], has_secret=has_secret, prefix=prefix)

        return await aside(adopted)

    def _record(self, workspace: str, entry: Entry, adoption: Adoption) -> Record:
        return Record(
            workspace=workspace,
            entry_id=entry.id,
            name=entry.name,
            prefix=adoption.prefix or default_prefix(entry.id),
            launch=adoption.launch,
            settings=adoption.settings,
            tools=tuple(tool.name for tool in entry.tools),
        )

    async def _consented(self, record: Record, source: str) -> Record:
        """Raises NeedsApproval."""
        wish = Wish(record.workspace, record.entry_id, source, record.launch)
        trusted = source in await self.catalog.trusted()
        if free(wish, trusted, self._app.plan.allowed):
            return record
        return msgspec.structs.replace(record, approval=await self.consent.given(wish))

    async def _activated(self, record: Record, told: Told, old: Record | None = None) -> ActiveMount:
        """Start, list, keep, mount; ``old`` is what the record replaces."""
        app = self._app
        self._check_prefix(record, old)
        with _Claim(self._busy, record):
            variant = await aside(lambda: app.additions.variant(record))
            if variant.unavailable:
                raise MooringError(f'"{record.entry_id}" cannot be started: {variant.unavailable}')
            self._check_variant(variant)
            async with trial(self._app, variant):
                listing = await listed(self._app, record, variant, told)
                tools = tuple(tool.name for tool in listing.tools)
                record = msgspec.structs.replace(record, tools=tools, mounted_at=old.mounted_at if old else time.time())
                async with self._changing:
                    self._check_still(record, old)
                    if old is None:
                        self._check_names(record, listing)
                    await finish(self._kept(record, variant))
        if old is not None and old.variant != record.variant:
            await ended(self._app, old.variant)
        return self.row(record)

    async def _kept(self, record: Record, variant: Variant) -> None:
        await self._app.additions.put(record, variant)
        # Only now: from here on a revocation finds the mount by itself.
        if record.approval and not await self.consent.stands(record.approval):
            await self._app.additions.drop(record)
            raise NeedsApproval(f'"{record.entry_id}" was not added: its approval was revoked meanwhile.')

    def _check_still(self, record: Record, old: Record | None) -> None:
        """What it replaces may have been removed while it started. Raises NotActive, AlreadyActive."""
        there = self._app.additions.get(record.workspace, record.entry_id)
        if there is None and old is not None:
            raise NotActive(f'"{record.entry_id}" was removed meanwhile; nothing was changed.')
        if there is not None and old is None:
            raise AlreadyActive(f'"{record.entry_id}" became active meanwhile, as "{there.prefix}": call its tools.')

    def _check_prefix(self, record: Record, old: Record | None) -> None:
        """Raises ConfigError and PrefixTaken."""
        if fault := prefix_fault(record.prefix):
            raise ConfigError(fault)
        room = self._room(record.workspace)
        why = "" if old is not None else mounts.clash(record.prefix, room)
        if not why and old is None and any(other.prefix == record.prefix for other in self._others(record)):
            why = f'the prefix "{record.prefix}" belongs to another server that was added'
        if why:
            free = mounts.free_prefix(record.prefix, room)
            raise PrefixTaken(f'"{record.entry_id}" was not added: {why}. Free is: prefix "{free}".', path="prefix")

    def _others(self, record: Record) -> list[Record]:
        return [other for other in self._app.additions.records(record.workspace) if other.entry_id != record.entry_id]

    def _check_variant(self, variant: Variant) -> None:
        """Two ids may become one name of a server. Raises ConfigError."""
        other = self._app.plan.variants.get(variant.id)
        if other is not None and other.launch != variant.launch:
            raise ConfigError(f'Another definition runs as "{variant.id}" already; remove that first.')

    def _check_names(self, record: Record, listing: Listing) -> None:
        """Raises PrefixTaken when a tool would be called like one that is there."""
        there = self._app.views.table(record.workspace).tools
        for tool in listing.tools:
            name = advertised(record.prefix, tool.name)
            if name in there:
                free = mounts.free_prefix(record.prefix, self._room(record.workspace))
                raise PrefixTaken(
                    f'"{record.entry_id}" was not added: its tool {tool.name} would be called {name}, as one of '
                    f'{there[name].mount.server} is. Free is: prefix "{free}".'
                )

    # what is there

    def _find(self, workspace: str, what: str) -> Record:
        """By entry id or prefix. Raises NotActive."""
        self._room(workspace)
        records = self._app.additions.records(workspace)
        for record in records:
            if what.strip().lower() in (record.entry_id, record.prefix):
                return record
        listed = ", ".join(f'{record.entry_id} (prefix "{record.prefix}")' for record in records) or "nothing"
        raise NotActive(f'"{what}" is not active in "{workspace}", so there is nothing to do. Active: {listed}.')

    def _instance(self, record: Record) -> tuple[InstanceRow | None, str]:
        """Its line of ``ps``, and why it does not serve at this moment."""
        app = self._app
        mounted = any(
            mount.prefix == record.prefix and mount.variant == record.variant
            for mount in app.plan.workspaces.get(record.workspace, Workspace("")).mounts
        )
        if not mounted:
            return None, mounts.obstacle(record, app.plan) or "it is being changed"
        running = [row for row in app.pool.rows() if row.variant == record.variant]
        rows = [
            row for row in instance_rows(running, app.plan, app.listings, app.views) if row.variant == record.variant
        ]
        row = next((row for row in rows if row.state == "ready"), rows[0])
        return row, row.reason

    async def _in_editor(self, mount: ActiveMount, editor: str | None) -> ActiveMount:
        """Mooring in the editor's file; what goes wrong there does not undo the add."""
        if editor is None:
            return mount
        from mooring.export.ourselves import write

        try:
            note = await asyncio.to_thread(write, editor, mount.workspace, os.environ)
        except (ConfigError, OSError) as error:
            note = f"{editor} was not told: {error}"
        return msgspec.structs.replace(mount, notes=(*mount.notes, note))


class _Claim:
    """While the block lasts nobody else adds the same entry, or under the same prefix. Raises AlreadyActive."""

    def __init__(self, busy: set[tuple[str, str]], record: Record) -> None:
        self._busy = busy
        self._places = {(record.workspace, record.entry_id), (record.workspace, record.prefix)}
        self._record = record

    def __enter__(self) -> None:
        if self._places & self._busy:
            record = self._record
            raise AlreadyActive(f'"{record.entry_id}" or its prefix "{record.prefix}" is being added right now; wait.')
        self._busy |= self._places

    def __exit__(self, *_: object) -> None:
        self._busy -= self._places
