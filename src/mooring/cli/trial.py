"""Start one server once, with the daemon's own parts but apart from any daemon, and see what it offers.

Called by ``mooring server test``. Nothing is kept: the store is in memory, and the server ends with the block.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import AsyncExitStack

import msgspec

from mooring.cli.configured import planned
from mooring.cli.shapes import OfferedTool, TrialReport
from mooring.config.home import Home
from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Process
from mooring.config.references import expand
from mooring.config.schema import Config, Loaded, Workspace
from mooring.config.schema_agents import Grant
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError, TimedOut
from mooring.launch.environment import child_environment, find_command
from mooring.launch.kept import Keeper
from mooring.launch.process import working_folder
from mooring.nouns import Item, Listing
from mooring.observe.redact import Redactor
from mooring.serve.app import App
from mooring.serve.reload import Configuration
from mooring.store.sqlite import MEMORY, SqliteStore

_WORKSPACE = "test"


class _Fixed(Configuration):
    """A plan that is made already."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.files[0], Secrets(Home.locate()))
        self._plan = plan

    def resolved(self, look: bool = False) -> Plan:
        return self._plan


def tried(written: Loaded, server: str, workspace: str | None) -> TrialReport:
    """Start ``server`` with the kwargs it has in ``workspace`` (None: the first that has it, else none). Raises
    MooringError when it does not answer."""
    plan = planned(msgspec.structs.replace(written, config=alone(written.config, server, workspace)))
    (variant,) = plan.variants.values()
    program_of(variant)
    import uvloop  # as the daemon runs

    return uvloop.run(_tried(msgspec.structs.replace(plan, workspaces={}), variant))


def alone(config: Config, server: str, workspace: str | None) -> Config:
    """``config`` with this server only, switched on, and one workspace that has it. Pure. Raises ConfigError."""
    having = [name for name, one in config.workspaces.items() if server in expand(config, one.mcp_servers)]
    if workspace is not None and config.workspaces and workspace not in having:
        raise ConfigError(f'the workspace "{workspace}" does not have "{server}"; these do: {", ".join(having)}')
    name = workspace or (having[0] if having else None)
    grants = config.workspaces[name].mcp if name in config.workspaces else {}
    only = Workspace(mcp_servers=(server,), mcp={server: grants.get(server, Grant())})
    definition = msgspec.structs.replace(config.mcp_servers[server], enabled=True)
    return msgspec.structs.replace(config, mcp_servers={server: definition}, workspaces={name or _WORKSPACE: only})


def program_of(variant: Variant) -> str:
    """The absolute path of the program that would be run; "" when none is. Raises LaunchMissing."""
    launch = variant.launch
    if not isinstance(launch, Process):
        return ""
    environment = child_environment(launch.env, {}, os.environ)
    return find_command(launch.argv[0], environment, working_folder(launch.cwd, environment))


async def _tried(plan: Plan, variant: Variant) -> TrialReport:
    began = time.monotonic()
    limit = variant.timeouts.pull + variant.timeouts.start + variant.timeouts.discover
    try:
        async with asyncio.timeout(limit):
            listing = await _listing(plan, variant)
    except TimeoutError:
        raise TimedOut(f"{variant.server} did not list what it offers within {limit:g} s.") from None
    return TrialReport(
        server=variant.server,
        era=listing.facts.era,
        version=listing.facts.version,
        seconds=round(time.monotonic() - began, 3),
        tools=tuple(_tool(item) for item in listing.tools),
        prompts=len(listing.prompts),
        resources=len(listing.resources) + len(listing.templates),
        problems=listing.problems,
    )


async def _listing(plan: Plan, variant: Variant) -> Listing:
    async with AsyncExitStack() as stack:
        keeper = await stack.enter_async_context(Keeper())
        store = await stack.enter_async_context(SqliteStore(MEMORY))
        logging.getLogger("mooring").addHandler(logging.NullHandler())  # the verb itself says what went wrong
        redact = Redactor()
        secrets = Secrets(Home.locate(), found=redact.add)
        app = App(_Fixed(plan), store, secrets, keeper, redact)
        await app.start(stack)
        lease = await app.pool.lease(variant, variant.key())
        stack.callback(lease.release)
        await app.pool.listed(lease.key)
        listing = app.listings.get(variant)
        assert listing is not None
        return listing


class _Described(msgspec.Struct):
    description: str = ""


def _tool(item: Item) -> OfferedTool:
    try:
        return OfferedTool(item.name, msgspec.json.decode(item.raw, type=_Described).description)
    except msgspec.DecodeError:
        return OfferedTool(item.name)
