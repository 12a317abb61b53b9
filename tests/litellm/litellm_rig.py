"""What syncs, with everything that it needs of a daemon, for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from litellm_api import Api

from mooring.access.keys import Keys
from mooring.config.home import Home
from mooring.config.load import load
from mooring.config.plan import Plan
from mooring.config.resolve import resolve
from mooring.config.secrets import Secrets
from mooring.export.base import Offer
from mooring.export.litellm import LiteLLM
from mooring.export.litellm_entries import Names
from mooring.export.litellm_vault import Vault
from mooring.nouns_litellm import LiteLLMReport
from mooring.observe.events import Events
from mooring.store.sqlite import SqliteStore

TWO_TEAMS = """
[mcp_servers.time]
command = "time"
[mcp_servers.git]
command = "git"
[workspaces.a]
mcp_servers = ["time", "git"]
[workspaces.b]
mcp_servers = ["time"]
"""
BASE = "http://mooring:7420"


class Rig:
    """A LiteLLM to sync with, and a Mooring that does it."""

    def __init__(self, api: Api, folder: Path, store: SqliteStore) -> None:
        self.api = api
        self.folder = folder
        self.store = store
        self.home = Home.below(str(folder))
        self.home.prepare()
        self.secrets = Secrets(self.home, environ={"MASTER": api.master_key, "TOKEN": "token of the remote"})
        self.keys = Keys(store, Events())
        self.keys.load()
        self.vault = Vault(self.secrets, self.keys)
        self.litellm = LiteLLM(store, self.vault)
        self.names = Names("")
        self.plan = Plan()
        self.write(TWO_TEAMS)

    def write(self, config: str, **litellm: str) -> None:
        """Another configuration; ``litellm``: further keys of its table, as TOML."""
        table = {"url": f'"{self.api.url}"', "master_key": '{ env = "MASTER" }', **litellm}
        file = self.folder / "mooring.toml"
        file.write_text(config + "\n[litellm]\n" + "".join(f"{key} = {value}\n" for key, value in table.items()))
        loaded = load(str(file))
        self.plan = resolve(loaded, fingerprint=self.secrets.fingerprint, unsupported=lambda _: "")

    @property
    def offer(self) -> Offer:
        return Offer(self.plan, BASE)

    async def sync(self) -> list[tuple[str, str, str]]:
        """Sync; what was done, as (action, kind, name)."""
        return short(await self.litellm.sync(self.offer))

    async def key(self, workspace: str) -> str:
        return (await self.litellm.access(self.offer, workspace)).key


def short(report: LiteLLMReport) -> list[tuple[str, str, str]]:
    return [(change.action, change.kind, change.name) for change in report.changes]


@asynccontextmanager
async def rig(api: Api, folder: Path) -> AsyncGenerator[Rig]:
    """With a store of its own."""
    async with SqliteStore(":memory:") as store:
        made = Rig(api, folder, store)
        made.names = Names(await made.vault.installation())
        yield made
