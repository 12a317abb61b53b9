"""The tables of who is given servers: layers, ``[agent_pool]``, ``[teams.NAME]``, ``[agents.NAME]``. Pure; see
``config.schema``, which has the layer that is a workspace.
"""

from __future__ import annotations

from typing import Literal

from mooring.config.schema_base import Kwarg, Table, Via
from mooring.config.schema_servers import Secret, Tools
from mooring.nouns import Sharing


class MountTable(Table, frozen=True, kw_only=True):
    """How a workspace sees a server."""

    prefix: str | None = None
    """First part of its tools' names; default the server's name with `-` as `_`."""
    tools: Tools = Tools()
    """Filter for this workspace; a tool must pass the server's too."""
    sharing: Sharing | None = None
    """Who shares its instances; default the server's `sharing`."""
    via: Via | None = None
    """For agents: how the server is reached; default the agent's `via`."""


class Grant(Table, frozen=True, kw_only=True):
    """What one layer gives one server."""

    presets: tuple[str, ...] = ()
    """Presets to take kwargs from, in this order."""
    mount: MountTable = MountTable()
    """How the server is seen."""
    kwargs: dict[str, Kwarg] = {}
    """Every other key is a kwarg; `"key+"` appends to what presets or defaults give."""


class Layer(Table, frozen=True, kw_only=True):
    """Keys of everything that is given servers."""

    mcp_servers: tuple[str, ...] = ()
    """Servers, groups, or `"*"` for all servers."""
    mcp: dict[str, Grant] = {}
    """Server to its kwargs here."""


class AgentPool(Layer, frozen=True, kw_only=True):
    """What all agents are given."""


class Team(Layer, frozen=True, kw_only=True):
    """What the members of a team are given."""

    members: tuple[str, ...] = ()
    """Agents."""


class Agent(Layer, frozen=True, kw_only=True):
    """An agent, and what it alone is given."""

    type: Literal["native", "ag_ui", "claude_code", "codex", "acp"]
    """What runs it."""
    model: str | None = None
    """Model to use; needed by `native`, such as `openai:gpt-5`."""
    url: str | None = None
    """Of `ag_ui`: where it is reached."""
    headers: dict[str, str] = {}
    """Of `ag_ui`: HTTP headers to send; `{NAME}` is filled with that secret."""
    command: tuple[str, ...] | str | None = None
    """What starts it: the program, or program and arguments. Needed by `acp`; default `claude` for `claude_code` and
    `codex` for `codex`."""
    cwd: str | None = None
    """Folder it works in, relative to this file; default the folder of the one who runs it."""
    env: dict[str, str] = {}
    """Environment variables of its program that are not secret."""
    secrets: dict[str, Secret] = {}
    """Environment variable of its program, or name in `headers`, to secret reference."""
    prompt: str | None = None
    """Instructions it always gets."""
    via: Via = "mooring"
    """How it reaches its servers: through Mooring's endpoint with its own key, or `direct` by its own MCP client.
    Servers that need a secret, and others that only Mooring can run, go through Mooring all the same."""
    confirm: Literal["always", "never", "per_tool"] = "per_tool"
    """Which tool calls a person must approve, besides those that `confirm` of a server, mount or policy names;
    `per_tool`: functions that ask for it, and tools that say themselves that they destroy."""
    tools: tuple[str, ...] = ()
    """Python functions offered to it as tools: import paths, `module:name` of a function or of a list of them."""

    def __post_init__(self) -> None:
        for key, kinds in _AGENT_KEYS.items():
            if getattr(self, key) and self.type not in kinds:
                raise ValueError(f"{key} is for agents of type {' and '.join(kinds)}, not {self.type}")
        for kind, key in (("native", "model"), ("ag_ui", "url"), ("acp", "command")):
            if self.type == kind and not getattr(self, key):
                raise ValueError(f"an agent of type {kind} needs {key}")


_AGENT_KEYS = {
    "url": ("ag_ui",),
    "headers": ("ag_ui",),
    "model": ("native", "claude_code", "codex"),
    "command": ("claude_code", "codex", "acp"),
    "cwd": ("claude_code", "codex", "acp"),
    "env": ("claude_code", "codex", "acp"),
    "secrets": ("ag_ui", "claude_code", "codex", "acp"),
}
"""Keys that not every type of agent has."""
