"""Keeps one LiteLLM in step with the plan: variants as servers, workspaces as teams with a key each.

``serve`` runs it after boot, after each reload, on a schedule, and when somebody asks. A sync looks, plans, makes the
changes, and looks again; whatever stops it in the middle, the next one starts from what is there. Never touches what
others made in LiteLLM, and never stops Mooring: its failures are raised to whoever runs it, who tries again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from mooring.config import plan as plans
from mooring.config.plan import Plan
from mooring.errors import ConfigError, MooringError, Unavailable
from mooring.export.base import Offer
from mooring.export.litellm_entries import Key, Names, Observed, Server, Team
from mooring.export.litellm_plan import Change, changes, clashing
from mooring.export.litellm_vault import Vault
from mooring.export.litellm_wanted import Registration, Wanted, registrations, wanted
from mooring.nouns_litellm import (
    LiteLLMAccess,
    LiteLLMChange,
    LiteLLMReport,
    LiteLLMServer,
    LiteLLMSkipped,
    LiteLLMStatus,
)
from mooring.store.base import Store

ROUNDS = 4
"""Times that a sync looks and changes: somebody else may be changing things meanwhile, or LiteLLM may lag behind."""
PAUSE = 0.5
"""Seconds between two of them."""


class _Aim(msgspec.Struct, frozen=True):
    """What a sync is to reach."""

    names: Names
    found: tuple[Registration, ...]
    skipped: tuple[LiteLLMSkipped, ...]


class _Known(msgspec.Struct, frozen=True):
    """What the last sync left, as the store has it."""

    servers: tuple[LiteLLMServer, ...] = ()
    workspaces: tuple[str, ...] = ()
    synced_at: float | None = None


class LiteLLM:
    """One sync at a time."""

    def __init__(self, store: Store, vault: Vault, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._vault = vault
        self._clock = clock
        self._working = asyncio.Lock()
        self._error = ""
        self._settled = False
        """A sync has ended well since the start."""
        self._removed: plans.LiteLLM | None = None
        """The settings under which everything was taken out by hand: nothing is put back on a schedule."""

    async def export(self, offer: Offer) -> float | None:
        """A sync nobody waits for. Returns the seconds until the next one, None when only a change calls for it. Raises
        MooringError."""
        settings = offer.plan.litellm
        if settings is None:
            return None
        async with self._working:  # a removal may just go on
            if settings == self._removed:
                return None
            await self._sync(settings, offer, dry_run=False)
        return settings.interval or None

    async def sync(self, offer: Offer, *, dry_run: bool = False) -> LiteLLMReport:
        """Make LiteLLM agree with ``offer``, or tell what that would change. Raises MooringError; what was done until
        then is done."""
        settings = _settings(offer.plan)
        async with self._working:
            return await self._sync(settings, offer, dry_run=dry_run)

    async def _sync(self, settings: plans.LiteLLM, offer: Offer, *, dry_run: bool) -> LiteLLMReport:
        """The same, while nothing else works."""
        found, skipped = registrations(offer.plan, offer.url)
        try:
            aim = _Aim(Names(await self._vault.installation()), found, skipped)
            report = await self._reach(settings, aim, dry_run)
        except MooringError as error:
            self._error = str(error)
            raise
        if not dry_run:
            self._error, self._settled, self._removed = "", True, None
        return report

    async def remove(self, offer: Offer, *, dry_run: bool = False) -> LiteLLMReport:
        """Take out of LiteLLM whatever this installation put there, and end the keys. Raises MooringError."""
        settings = _settings(offer.plan)
        async with self._working:
            report = await self._reach(settings, _Aim(Names(await self._vault.installation()), (), ()), dry_run)
            if not dry_run:
                self._error, self._settled, self._removed = "", True, settings
        return report

    async def status(self, offer: Offer) -> LiteLLMStatus:
        """How things stood when it last looked; asks nobody. Raises ConfigError without ``[litellm]``."""
        settings = _settings(offer.plan)
        known = await self._known()
        return LiteLLMStatus(
            url=settings.url,
            via=settings.via,
            state="failing" if self._error else "ok" if self._settled else "waiting",
            error=self._error,
            synced_at=known.synced_at,
            servers=known.servers,
            workspaces=known.workspaces,
            skipped=registrations(offer.plan, offer.url)[1],
        )

    async def access(self, offer: Offer, workspace: str) -> LiteLLMAccess:
        """How an agent of ``workspace`` reaches LiteLLM. Raises ConfigError when LiteLLM has nothing for it."""
        settings = _settings(offer.plan)
        known = await self._known()
        key = (await self._vault.keys([workspace])).get(workspace)
        if key is None or workspace not in known.workspaces:
            raise ConfigError(
                f'LiteLLM has no key for "{workspace}": see mooring litellm status, then run mooring litellm sync'
            )
        return LiteLLMAccess(f"{settings.public_url}/mcp", key, workspace)

    async def _reach(self, settings: plans.LiteLLM, aim: _Aim, dry_run: bool) -> LiteLLMReport:
        """Rounds of looking and changing until there is nothing to change."""
        from mooring.export.litellm_client import LiteLLMClient  # an HTTP client is loaded once it is needed

        known = await self._known()
        done: list[LiteLLMChange] = []
        refusal: Unavailable | None = None
        async with LiteLLMClient(settings.url, await self._vault.fetch(settings.master_key)) as client:
            for attempt in range(ROUNDS):
                if refusal is not None:
                    await asyncio.sleep(PAUSE * attempt)
                workspaces = {workspace for each in aim.found for workspace in each.workspaces} | {*known.workspaces}
                observed = await client.observe(aim.names, sorted(workspaces))
                step = await self._step(aim, observed, workspaces, make=not dry_run)
                if dry_run or not step.changes:
                    done += map(_shown, step.changes)
                    if not dry_run:
                        await self._keep(settings, aim.names, step.found, known)
                    return LiteLLMReport(settings.url, not dry_run, tuple(done), step.skipped)
                refusal = await self._apply(client, step, done)
        raise refusal or Unavailable(
            f"LiteLLM at {settings.url} does not stay as it is told: something else keeps changing what Mooring made"
        )

    async def _step(self, aim: _Aim, observed: Observed, workspaces: Iterable[str], *, make: bool) -> _Step:
        taken = clashing(aim.found, observed, aim.names)
        found = tuple(each for each in aim.found if each not in taken)
        credentials = await self._vault.credentials(found, make=make)
        prints = {variant: await self._vault.fingerprint(value) for variant, value in credentials.items()}
        keys = await self._vault.keys(workspaces)
        hashes = {workspace: hashlib.sha256(key.encode()).hexdigest() for workspace, key in keys.items()}
        right: Wanted = wanted(found, aim.names, prints)
        return _Step(
            changes=changes(right, observed, aim.names, hashes),
            found=found,
            skipped=(*aim.skipped, *(_taken(each, workspace) for each in taken for workspace in each.workspaces)),
            credentials=credentials,
            keys=keys,
            names=aim.names,
        )

    async def _apply(self, client: Any, step: _Step, done: list[LiteLLMChange]) -> Unavailable | None:
        """Make the changes, in their order. Returns what LiteLLM said when it refused one, such as because it changed
        meanwhile; the next look will tell. Raises MooringError when it cannot be asked at all."""
        for change in step.changes:
            try:
                await self._make(client, step, change)
            except Unavailable as error:
                if error.details.get("code") is None:
                    raise
                return error
            done.append(_shown(change))
        return None

    async def _make(self, client: Any, step: _Step, change: Change) -> None:
        match change.action, change.entry:
            case "remove", Server(id=id):
                await client.remove_server(id)
            case "remove", Team(id=id):
                await client.remove_team(id)
            case "remove", Key(hash=hash):
                await client.remove_key(hash)
            case action, Server() as server:
                secret = step.credentials.get(server.tag["variant"], "")
                await client.put_server(server, secret, new=action == "create")
            case action, Team() as team:
                await client.put_team(team, new=action == "create")
            case "update", Key() as key:
                await client.update_key(key)
            case _, key:
                workspace = step.names.workspace(key.alias)
                value = await self._vault.new_key(workspace) if change.fresh else step.keys[workspace]
                await client.create_key(key, value)

    async def _known(self) -> _Known:
        """What the store remembers."""
        servers: list[LiteLLMServer] = []
        workspaces: list[str] = []
        synced_at = None
        for kind, name, _, detail in await self._store.read("litellm"):
            match kind:
                case "server":
                    servers.append(msgspec.json.decode(detail, type=LiteLLMServer))
                case "workspace":
                    workspaces.append(name)
                case _:
                    synced_at = float(detail)
        return _Known(tuple(servers), tuple(workspaces), synced_at)

    async def _keep(
        self, settings: plans.LiteLLM, names: Names, found: tuple[Registration, ...], before: _Known
    ) -> None:
        """Remember what LiteLLM has now, and drop the secrets of what it has no more."""
        servers = [
            LiteLLMServer(each.variant, each.name, names.server(each.variant), each.url, each.workspaces)
            for each in found
        ]
        workspaces = dict.fromkeys(workspace for each in found for workspace in each.workspaces)
        rows = [
            *(("server", row.variant, row.id, msgspec.json.encode(row).decode()) for row in servers),
            *(("workspace", workspace, names.team(workspace), "") for workspace in workspaces),
            ("sync", settings.url, "", str(self._clock())),
        ]
        await self._vault.forget(
            {row.variant for row in before.servers} - {row.variant for row in servers},
            {*before.workspaces} - {*workspaces},
        )
        await self._store.run("put_litellm", rows=msgspec.json.encode(rows).decode())


class _Step(msgspec.Struct, frozen=True):
    """One look, and what follows from it."""

    changes: tuple[Change, ...]
    found: tuple[Registration, ...]
    skipped: tuple[LiteLLMSkipped, ...]
    credentials: Mapping[str, str]
    """Variant to what LiteLLM sends to it."""
    keys: Mapping[str, str]
    """Workspace to its LiteLLM key."""
    names: Names


def _settings(plan: Plan) -> plans.LiteLLM:
    if plan.litellm is None:
        raise ConfigError("The configuration has no [litellm]; it needs url and master_key there.")
    return plan.litellm


def _taken(each: Registration, workspace: str) -> LiteLLMSkipped:
    reason = f'LiteLLM has a server called "{each.name}" of somebody else; choose a litellm.alias_prefix'
    return LiteLLMSkipped(workspace, "", each.variant, reason)


def _shown(change: Change) -> LiteLLMChange:
    entry = change.entry
    match entry:
        case Server():
            name, id = entry.name or entry.alias, entry.id
        case Team():
            name, id = entry.alias, entry.id
        case Key():
            name, id = entry.alias, entry.hash[:12]
    return LiteLLMChange(change.action, change.kind, name, id, change.why)
