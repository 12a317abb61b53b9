"""Servers of a running daemon, borrowed by agents that run in a process of their own.

The daemon lends a key for each agent's workspace as long as the borrower's control connection lasts; the borrower puts
the daemon's endpoint of a variant in the place of that variant's launch. So one instance serves both, what agents do is
in the daemon's audit, and the rest of what agents need (own functions, confirmation, questions) stays where they run.
Used by ``serve.verbs`` on one side and by ``facade.connect`` on the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from mooring.config.plan import Mount, Plan, Variant, Workspace
from mooring.config.plan_servers import Remote
from mooring.errors import MooringError

if TYPE_CHECKING:
    from mooring.agents.handler import Handler
    from mooring.agents.pool import AgentPool
    from mooring.config.home import Home
    from mooring.serve.app import App

LIMIT = 30.0
"""Seconds that the daemon has to lend something."""
LOOKS = 10.0
"""Seconds that the daemon waits for its first looks at servers, so that the borrower does not begin with half of them;
what comes later is told as a changed list."""


class Room(msgspec.Struct, frozen=True):
    """What is lent of one agent's workspace."""

    key: str
    variants: tuple[str, ...]


class Loan(msgspec.Struct, frozen=True):
    """What the daemon lends."""

    endpoint: str
    """URL of its data endpoint."""
    file: str
    """Its main configuration file."""
    rooms: dict[str, Room]
    """By workspace."""


async def lend(app: App, heard: Callable[[str, Any], None]) -> None:
    """Tell ``heard`` a loan; it ends with the task that this runs in."""
    mounted = [mount.variant for workspace in app.plan.agents for mount in app.plan.workspaces[workspace].mounts]
    with suppress(TimeoutError):
        async with asyncio.timeout(LOOKS):
            await app.looks.wait(mounted)
            await app.looks.done()
    rooms: dict[str, Room] = {}
    lent: list[str] = []
    try:
        for workspace in app.plan.agents:
            key = app.keys.lend(workspace, "agents", ours=True)
            lent.append(key.id)
            variants = tuple(mount.variant for mount in app.plan.workspaces[workspace].mounts)
            rooms[workspace] = Room(key.key, variants)
        heard("loan", Loan(app.endpoint, app.configuration.file, rooms))
        await asyncio.get_running_loop().create_future()  # until the borrower goes away
    finally:
        for key_id in lent:
            app.keys.take_back(key_id)


def over(plan: Plan, loan: Loan) -> Plan:
    """The plan of a process that runs nothing but agents, with everything that is lent in its place. What each further
    session of an agent has to itself is not: to the daemon, all sessions of an agent are one. Pure."""
    variants: dict[str, Variant] = {}
    workspaces: dict[str, Workspace] = {}
    for name, agent in plan.agents.items():
        owner = f"agent/{agent.name}"
        room = loan.rooms.get(owner)
        mounts: list[Mount] = []
        for mount in plan.workspaces[name].mounts:
            variant = plan.variants[mount.variant]
            alone = name != owner and (mount.sharing == "session" or variant.dialogue == "session")
            if room is not None and variant.id in room.variants and not alone:
                variant = _lent(variant, name, loan.endpoint, room.key)
            variants[variant.id] = variant
            mounts.append(msgspec.structs.replace(mount, variant=variant.id))
        workspaces[name] = msgspec.structs.replace(plan.workspaces[name], mounts=tuple(mounts))
    return msgspec.structs.replace(plan, variants=variants, workspaces=workspaces)


def _lent(variant: Variant, workspace: str, endpoint: str, key: str) -> Variant:
    """A variant as one workspace reaches it at the daemon, under an id that no other workspace's has."""
    url = f"{endpoint.removesuffix('/mcp')}/s/{variant.id}/mcp"
    launch = Remote(url, headers={"Authorization": f"Bearer {key}"})
    return msgspec.structs.replace(variant, id=f"{variant.id}@{workspace}", launch=launch, spare=0, unavailable="")


@asynccontextmanager
async def agents(home: Home, handler: Handler, models: Mapping[str, Any]) -> AsyncGenerator[AgentPool]:
    """The agents of the daemon's configuration, to run them in this process. Raises DaemonAbsent, ConfigError."""
    from mooring.serve.library import opened

    async with _borrowed(home) as loan, opened(loan.file, home, lambda plan: over(plan, loan)) as verbs:
        verbs.redact(room.key for room in loan.rooms.values())
        async with verbs.agents(handler, models) as pool:
            yield pool


@asynccontextmanager
async def _borrowed(home: Home) -> AsyncGenerator[Loan]:
    """A loan as long as the block lasts."""
    from mooring.serve.control_client import connected

    told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def heard(what: str, data: Any) -> None:
        if not told.done():
            told.set_result(data)

    async with connected(home) as control:
        asking = asyncio.create_task(control.invoke("lend", {}, heard))
        try:
            await asyncio.wait((told, asking), timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                asking.result()
            if not told.done():
                raise MooringError("The Mooring daemon did not lend its servers in time.")
            yield msgspec.convert(told.result(), Loan)
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
