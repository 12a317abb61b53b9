"""What agents may run: entries of trusted sources, what the configuration allows, and what a person approved.

A command that an agent asks for is hostile until then. What is approved is one launch in one workspace, whole: with
another argument, image or volume it is another wish. Used by ``serve.registry``; approvals are written to the store
first.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

import msgspec

from mooring.catalog.errors import NeedsApproval
from mooring.config.plan import Allowed
from mooring.config.plan_servers import Container, Launch, Process, Remote, references
from mooring.config.report import command
from mooring.errors import ConfigError
from mooring.nouns_registry import ApprovalRow
from mooring.observe.events import Event, Events
from mooring.store.base import Store

COMMAND = ""
"""Source of a free command."""
PENDING = 100
"""Wishes that wait for a person, at most: what an agent asks for again and again must not fill the store."""


class Wish(msgspec.Struct, frozen=True):
    """What an agent wants to run."""

    workspace: str
    entry_id: str
    source: str
    launch: Launch

    @property
    def digest(self) -> str:
        """Of all of it."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()


def reach(launch: Launch) -> tuple[str, ...]:
    """What a launch could get at, in words."""
    found: list[str] = []
    match launch:
        case Process():
            found.append("everything that you may: your files, your network")
            found += [f"variable {name}={value}" for name, value in launch.env.items()]
        case Container():
            found += [f"volume {volume}" for volume in launch.volumes]
            network = launch.network if isinstance(launch.network, str) else ", ".join(launch.network)
            found.append(f"network: {network}")
        case Remote():
            found.append("what is sent to it")
        case _:
            pass
    found += [f"secret {name} {ref}" for name, ref in references(launch).items()]
    return tuple(found)


def shares_files(launch: Launch) -> bool:
    """Whether a container would see folders of this machine."""
    return isinstance(launch, Container) and any(volume.startswith(("/", ".", "~")) for volume in launch.volumes)


def free(wish: Wish, trusted: bool, allowed: Allowed) -> bool:
    """Whether an agent may run this without a person. Pure."""
    if wish.source == COMMAND:
        # With a variable, such as LD_PRELOAD, it is another command.
        return command(wish.launch) in allowed.commands and not getattr(wish.launch, "env", {})
    if any(fnmatchcase(wish.entry_id, glob) for glob in allowed.entries):
        return True
    return trusted and not shares_files(wish.launch)


class Consent:
    """The approvals, given and asked for."""

    def __init__(self, store: Store, events: Events, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._events = events
        self._clock = clock
        self._known: dict[str, tuple[Wish, ApprovalRow]] | None = None
        # The same wish twice at once is one approval; what is being revoked is there until that is written.
        self._changing = asyncio.Lock()

    async def rows(self) -> list[ApprovalRow]:
        """Those that wait first."""
        known = await self._all()
        return sorted((row for _, row in known.values()), key=lambda row: (row.approved_at is not None, row.asked_at))

    async def given(self, wish: Wish) -> str:
        """The id of the approval of this very wish. Raises NeedsApproval, once it is noted down for a person."""
        async with self._changing:
            known = await self._all()
            found = next((row for kept, row in known.values() if kept.digest == wish.digest), None)
            row = found or await self._noted(wish)
        if row.approved_at is not None:
            return row.id
        raise NeedsApproval(
            f'"{wish.entry_id}" needs the approval of a person first, as {_why(wish)}. Ask the user to run: mooring '
            f"approve {row.id} (it shows what would be run), then do the same again.",
            approval=row.id,
        )

    async def approve(self, id: str) -> ApprovalRow:
        """Approve a wish. Raises ConfigError when there is none of that id."""
        async with self._changing:
            wish, row = await self._find(id)
            row = msgspec.structs.replace(row, approved_at=self._clock())
            await self._put(wish, row, "approval.given")
            return row

    async def stands(self, id: str) -> bool:
        """Whether an approval was given and not revoked since."""
        found = (await self._all()).get(id)
        return found is not None and found[1].approved_at is not None

    async def revoke(self, id: str) -> ApprovalRow:
        """Take an approval back, or refuse a wish. Raises ConfigError when there is none of that id."""
        async with self._changing:
            _, row = await self._find(id)
            known = await self._all()

            def forgotten() -> None:
                known.pop(id, None)
                self._tell("approval.revoked", row)

            await self._store.run("drop_approval", forgotten, id=id)
            return row

    async def _noted(self, wish: Wish) -> ApprovalRow:
        waiting = [row for row in await self.rows() if row.approved_at is None]
        if len(waiting) >= PENDING:
            raise NeedsApproval(
                f"{PENDING} other wishes wait for a person already. Ask the user to look at them: mooring approve list"
            )
        row = _row("a_" + base64.b32encode(os.urandom(5)).decode().lower(), wish, self._clock(), None)
        await self._put(wish, row, "approval.asked")
        return row

    async def _put(self, wish: Wish, row: ApprovalRow, event: str) -> None:
        known = await self._all()

        def keep() -> None:
            known[row.id] = (wish, row)
            self._tell(event, row)

        text = msgspec.json.encode(wish).decode()
        await self._store.run(
            "put_approval",
            keep,
            id=row.id,
            digest=wish.digest,
            wish=text,
            asked_at=row.asked_at,
            approved_at=row.approved_at,
        )

    def _tell(self, name: str, row: ApprovalRow) -> None:
        data = {"approval": row.id, "entry": row.entry_id, "source": row.source, "command": row.command}
        self._events.emit(Event(name, self._clock(), row.workspace, data=data))

    async def _find(self, id: str) -> tuple[Wish, ApprovalRow]:
        known = await self._all()
        if id not in known:
            raise ConfigError(f'There is no approval "{id}". See: mooring approve list')
        return known[id]

    async def _all(self) -> dict[str, tuple[Wish, ApprovalRow]]:
        if self._known is None:
            found: dict[str, tuple[Wish, ApprovalRow]] = {}
            for id, _, text, asked_at, approved_at in await self._store.read("approvals"):
                wish = msgspec.json.decode(text, type=Wish)
                found[id] = (wish, _row(id, wish, asked_at, approved_at))
            if self._known is None:  # else somebody has read them meanwhile, and perhaps changed them
                self._known = found
        return self._known


def _row(id: str, wish: Wish, asked_at: float, approved_at: float | None) -> ApprovalRow:
    return ApprovalRow(
        id, wish.workspace, wish.entry_id, wish.source, command(wish.launch), reach(wish.launch), asked_at, approved_at
    )


def _why(wish: Wish) -> str:
    if wish.source == COMMAND:
        return "it is a command of your own"
    return "it would see folders of this machine" if shares_files(wish.launch) else f'"{wish.source}" is not trusted'
