"""What LiteLLM keeps for Mooring: servers, teams and keys, as Mooring compares them. Pure.

``export.litellm_wanted`` makes those that should be, ``export.litellm_client`` reads those that are, and
``export.litellm_plan`` compares the two. Whatever else LiteLLM has is somebody else's.
"""

from __future__ import annotations

from typing import Any

import msgspec

TAG = "mooring"
"""Key in a server's ``mcp_info`` and in the metadata of teams and keys under which Mooring signs what it made."""
ROUTES = ("mcp_routes",)
"""What a key opens in LiteLLM: MCP, and no model."""


class Names(msgspec.Struct, frozen=True):
    """The ids of one installation's entries. They hold the installation, so that several Mooring daemons can share one
    LiteLLM, and so that an entry is known for ours whatever else somebody changed in it."""

    installation: str

    @property
    def prefix(self) -> str:
        """How the ids of our servers and teams, and the aliases of our keys, begin."""
        return f"mooring-{self.installation}-"

    def server(self, variant: str) -> str:
        return self.prefix + variant

    def team(self, workspace: str) -> str:
        return self.prefix + workspace

    def key(self, workspace: str) -> str:
        """A key's alias: LiteLLM gives keys no other name, and no two the same."""
        return self.prefix + workspace

    def workspace(self, team_or_key: str) -> str:
        """The workspace of a team's id or a key's alias; "" when it is not ours."""
        return team_or_key.removeprefix(self.prefix) if team_or_key.startswith(self.prefix) else ""


class Server(msgspec.Struct, frozen=True):
    """A row of ``/v1/mcp/server``, as far as Mooring decides about it. ``name`` is both its name and its alias."""

    id: str
    name: str
    url: str
    alias: str = ""
    transport: str = "http"
    auth: str = "none"
    headers: dict[str, str] = {}
    groups: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    forwarded: tuple[str, ...] = ()
    """Headers of the caller that LiteLLM hands on."""
    open: bool = False
    """Whether every key may use it, granted or not."""
    tag: dict[str, Any] = {}
    """``installation``, ``variant``, and ``secret``: a fingerprint of the credential that was written with it, since
    LiteLLM does not give credentials back."""
    others: dict[str, Any] = {}
    """What else stands beside the tag; it is kept and never compared."""
    fixed: bool = False
    """It stands in LiteLLM's own configuration file and cannot be changed."""


class Grant(msgspec.Struct, frozen=True):
    """What a team or key may use: LiteLLM's ``object_permission``."""

    servers: tuple[str, ...] = ()
    """Ids, sorted."""
    groups: tuple[str, ...] = ()
    tools: dict[str, Any] = {}
    toolsets: tuple[str, ...] = ()


class Team(msgspec.Struct, frozen=True):
    id: str
    alias: str
    grant: Grant = Grant()
    tag: dict[str, Any] = {}
    others: dict[str, Any] = {}
    """As of a server."""


class Key(msgspec.Struct, frozen=True):
    alias: str
    team: str
    hash: str
    """SHA-256 of its value, hex: how LiteLLM names it."""
    grant: Grant = Grant()
    routes: tuple[str, ...] = ()


class Observed(msgspec.Struct, frozen=True):
    """What LiteLLM has: every server, our teams, and the keys that are in our teams or have our aliases."""

    servers: tuple[Server, ...] = ()
    teams: tuple[Team, ...] = ()
    keys: tuple[Key, ...] = ()
