"""The registry's tools: what each is called, takes and promises. Pure.

They are offered as ``registry_<name>``. What they do is in ``serve.registry_server``; ``exec`` is done by the relay.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

Entry = Annotated[str, Meta(description='Id of an entry, such as "docker/sqlite"; registry_find tells it.')]
Limit = Annotated[int, Meta(ge=1, le=100, description="Results at most.")]
Names = tuple[str, ...]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool."""


class Find(Arguments, frozen=True, kw_only=True):
    query: Annotated[str, Meta(description="Name or purpose; may be misspelt. Empty: the best known.")] = ""
    categories: Annotated[Names, Meta(description="Only of one of these categories.")] = ()
    tags: Annotated[Names, Meta(description="Only with one of these tags.")] = ()
    sources: Annotated[Names, Meta(description="Only from one of these sources; registry_status lists them.")] = ()
    official_only: Annotated[bool, Meta(description="Only by the makers of what they give access to.")] = False
    featured_only: Annotated[bool, Meta(description="Only those that are recommended.")] = False
    limit: Limit = 20


class List(Arguments, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description='Only from this source; "all" for every one.')] = "all"
    limit: Limit = 50


class Docs(Arguments, frozen=True, kw_only=True):
    entry_id: Entry


class Add(Arguments, frozen=True, kw_only=True):
    entry_id: Entry
    prefix: Annotated[
        str | None, Meta(description="First part of its tools' names; a-z, 0-9 and _. Default: last part of the id.")
    ] = None
    editor: Annotated[
        str | None, Meta(description='Also write Mooring into the settings of this client, such as "zed".')
    ] = None
    settings: Annotated[
        dict[str, Any], Meta(description="Settings that the entry declares. Never secrets: the user sets those.")
    ] = {}


class Exec(Arguments, frozen=True, kw_only=True):
    tool_name: Annotated[str, Meta(description='Any tool of this workspace, such as "sqlite_list_tables".')]
    arguments: Annotated[dict[str, Any], Meta(description="Its arguments.")] = {}


class Remove(Arguments, frozen=True, kw_only=True):
    entry_id: Annotated[str, Meta(description="Id of the entry, or the prefix of its tools.")]


class Active(Arguments, frozen=True, kw_only=True):
    pass


class ConfigSet(Arguments, frozen=True, kw_only=True):
    entry_id: Annotated[str, Meta(description="Id of an active entry, or its prefix.")]
    environment: Annotated[
        dict[str, str], Meta(description="Variables to set. Only those the entry declares, and no secrets.")
    ]


class Status(Arguments, frozen=True, kw_only=True):
    pass


class Refresh(Arguments, frozen=True, kw_only=True):
    source: Annotated[str, Meta(description='Name of the source to read anew; "all" for every one.')] = "all"


class LaunchStdio(Arguments, frozen=True, kw_only=True):
    command: Annotated[str, Meta(description="Program of an MCP server that speaks on stdin and stdout.")]
    prefix: Annotated[str, Meta(description="First part of its tools' names; a-z, 0-9 and _.")]
    args: Annotated[Names, Meta(description="Its arguments; no shell reads them.")] = ()
    env: Annotated[dict[str, str], Meta(description="Variables to set; no secrets.")] = {}


class Tool(msgspec.Struct, frozen=True):
    """One tool. ``hints``: readOnly, destructive, idempotent, openWorld."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    hints: tuple[bool, bool, bool, bool]

    @property
    def listed(self) -> dict[str, Any]:
        """As ``tools/list`` shows it."""
        read_only, destructive, idempotent, open_world = self.hints
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": _schema(self.arguments),
            "annotations": {
                "readOnlyHint": read_only,
                "destructiveHint": destructive,
                "idempotentHint": idempotent,
                "openWorldHint": open_world,
            },
        }


def _schema(arguments: type[Arguments]) -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components([arguments])
    schema = components[arguments.__name__]
    schema.pop("title", None)
    return schema


LOOKS = (True, False, True, False)

TOOLS = {
    tool.name: tool
    for tool in (
        Tool("find", "Find servers", "Look for MCP servers by name or purpose. Add what fits with registry_add.",
             Find, LOOKS),
        Tool("list", "List the catalog", "The servers of the catalog, best known first.", List, LOOKS),
        Tool("get_docs", "About a server", "What a server does, needs and offers.", Docs, LOOKS),
        Tool("add", "Add a server",
             "Start a server of the catalog and offer its tools here, each as <prefix>_<tool>. Clients that do not "
             "look at their tools again reach them by registry_exec.", Add, (False, False, False, True)),
        Tool("exec", "Call a tool", "Call any tool of this workspace by name; the result is that tool's own.",
             Exec, (False, True, False, True)),
        Tool("remove", "Remove a server", "End a server that was added, and take its tools away.",
             Remove, (False, True, True, False)),
        Tool("active", "Active servers", "The servers that were added here, and how they are now.", Active, LOOKS),
        Tool("config_set", "Set variables",
             "Set environment variables of a server that was added; it is started anew with them.",
             ConfigSet, (False, True, True, True)),
        Tool("status", "Status of the registry", "The sources of the catalog, and how many servers are active.",
             Status, LOOKS),
        Tool("refresh", "Refresh the catalog", "Read sources of the catalog.", Refresh, (False, False, True, True)),
        Tool("launch_stdio", "Launch a command",
             "Start any program as an MCP server. The user has to approve the exact command first.",
             LaunchStdio, (False, True, False, True)),
    )
}  # fmt: skip
