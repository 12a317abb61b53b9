"""Writes ``docs/configuration.md`` from the docstrings of ``config.schema``: ``python -m mooring.config.reference``.

Run by developers; a test fails when the page is stale. Nothing of the product calls it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mooring.config import schema, schema_agents, schema_catalog, schema_identity, schema_policy, schema_servers

_INTRO = """# Configuration

<!-- Written by `python -m mooring.config.reference` from `src/mooring/config/schema*.py`; do not edit. -->

Mooring reads `mooring.toml` (in `$MOORING_HOME`, else in `$XDG_CONFIG_HOME/mooring`), the files it names in
`include = ["path", ...]` (at its top, relative to it), and `conf.d/*.toml` beside it, by name. A name is defined once.
`mooring check` shows what a configuration means; the daemon takes up a changed file by itself.

Durations are seconds or text: `90`, `"10m"`, `"1h30m"`. Paths are relative to the file they stand in; `~` is your home.
Names of servers and groups: `a-z`, `0-9`, `-` and `_`; `list`, `add`, `show`, `test`, `enable`, `disable` and `remove`
are verbs and cannot be names. Without any `[workspaces.X]` there is one workspace, `default`, with every server and the
registry.

## Kwargs

Whatever stands in `[workspaces.X.mcp.SERVER]` besides `presets` and `mount` is a kwarg of that server: text, a number,
true or false, or a list of these. Presets come first, in order (a later scalar wins, lists append), then the
workspace's own value replaces, and `"key+"` appends. `defaults` of the server hold where nobody says anything.

A kwarg fills `{key}` in `args`, `env`, `cwd`, `volumes`, `sandbox.paths`, `url` and `headers`; one that fills nothing
becomes `--key value` behind `args`, sorted (`true`: a bare flag; `false`: none; a list: repeated, or joined with
`join`). For a `url` that is an error. `{port}`, `{workspace}` (one instance a workspace) and `{session}` (one a
session) are filled by Mooring. A placeholder without a value is an error; values are not looked at again, so
`defaults = { x = "{x}" }` writes a literal `{x}`.
"""

_SECTIONS: tuple[tuple[str, str, type[msgspec.Struct]], ...] = (
    ("[gateway]", "", schema.Gateway),
    ("[audit]", "", schema_policy.Audit),
    (
        "[mcp_servers.NAME]",
        "Every server has exactly one of `command`, `image`, `url` and `plugin`.",
        schema_servers.Server,
    ),
    ("[mcp_servers.NAME] with command", "", schema_servers.CommandServer),
    ("[mcp_servers.NAME] with image", "", schema_servers.ImageServer),
    ("[mcp_servers.NAME] with url", "", schema_servers.UrlServer),
    ("oauth", "", schema_servers.OAuth),
    ("[mcp_servers.NAME] with plugin", "", schema_servers.PluginServer),
    ("[plugins]", "", schema_catalog.Plugins),
    ("Secret references", 'Where a secret stands: `{ env = "TOKEN" }` and the like.', schema_servers.Secret),
    ("tools", "", schema_servers.Tools),
    ("timeouts", "", schema_servers.Timeouts),
    ("limits", "", schema_servers.Limits),
    ("sandbox", "", schema_servers.Sandbox),
    ("[mcp_groups]", '`name = ["server", ...]`: a name for several servers. Groups hold no groups.', msgspec.Struct),
    ("[mcp_presets.NAME]", "Kwargs under a name.", msgspec.Struct),
    ("[workspaces.NAME]", "", schema.Workspace),
    ("[workspaces.NAME.policy]", "`[workspaces.NAME.keys.KEY]` takes the same for one key.", schema_policy.Policy),
    ("rule", 'An inline table, such as `{ server = "git", tool = "push*" }`.', schema_policy.Rule),
    ("rate", "", schema_policy.Rate),
    ("[workspaces.NAME.mcp.SERVER]", "", schema_agents.Grant),
    ("mount", "", schema_agents.MountTable),
    ("[identity.NAME]", "", schema_identity.Issuer),
    ("[[identity.NAME.admit]]", "", schema_identity.Admission),
    ("[catalog]", "", schema_catalog.Catalog),
    ("[catalog.sources.NAME]", "", schema_catalog.CatalogSource),
    ("[agent_pool]", "", schema_agents.AgentPool),
    ("[teams.NAME]", "", schema_agents.Team),
    ("[agents.NAME]", "", schema_agents.Agent),
    ("[litellm]", "", schema.LiteLLM),
    ("[telemetry]", "", schema_policy.Telemetry),
)


def page() -> str:
    """The whole page."""
    return "\n".join([_INTRO, *(line for title, text, struct in _SECTIONS for line in _section(title, text, struct))])


def _section(title: str, text: str, struct: type[msgspec.Struct]) -> Iterator[str]:
    yield f"## {f'`{title}`' if title.startswith('[') and ' ' not in title else title}\n"
    if struct is msgspec.Struct:
        yield f"{text}\n"
        return
    yield f"{inspect.getdoc(struct)}{' ' + text if text else ''}\n"
    yield "| key | type | default | meaning |"
    yield "|---|---|---|---|"
    meanings = _meanings(struct)
    of_every_server = struct is not schema_servers.Server and issubclass(struct, schema_servers.Server)
    shown: set[str] = set(schema_servers.Server.__struct_fields__ if of_every_server else ())
    for field in msgspec.structs.fields(struct):
        if field.name not in shown:
            meaning = meanings[field.name].replace("\n", " ").replace("|", "\\|")
            yield f"| `{field.encode_name}` | {_type(field.type)} | {_default(field)} | {meaning} |"
    yield ""


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Field to docstring, of the struct and what it builds on."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if not base.__module__.startswith(schema.__name__):
            continue
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in zip(definition.body, definition.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                assert isinstance(text.value, ast.Constant)
                found[field.target.id] = inspect.cleandoc(str(text.value.value))
    return found


def _default(field: msgspec.structs.FieldInfo) -> str:
    value: Any = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if value is msgspec.NODEFAULT:
        return "required"
    if value is None or value in ("", (), {}) or isinstance(value, msgspec.Struct):
        return ""
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{msgspec.json.encode(value).decode()}`"


def _type(kind: Any) -> str:
    return " or ".join(dict.fromkeys(_words(msgspec.inspect.type_info(kind))))


def _words(node: Any) -> Iterator[str]:
    match node:
        case msgspec.inspect.UnionType():
            for inner in node.types:
                yield from _words(inner)
        case msgspec.inspect.LiteralType():
            yield from (f"`{value!r}`".replace("'", '"') for value in node.values)
        case msgspec.inspect.VarTupleType():
            yield "list of " + " or ".join(dict.fromkeys(_words(node.item_type)))
        case msgspec.inspect.DictType(value_type=msgspec.inspect.UnionType()):
            yield "table of kwargs"
        case msgspec.inspect.DictType():
            yield "table of " + " or ".join(dict.fromkeys(_words(node.value_type)))
        case msgspec.inspect.CustomType():
            yield "duration"
        case msgspec.inspect.StructType():
            yield _TABLES[node.cls]
        case msgspec.inspect.NoneType():
            return
        case _:
            yield _PLAIN[type(node)]


_TABLES: dict[type, str] = {
    schema_servers.Secret: "secret reference",
    schema_servers.OAuth: "table, see oauth",
    schema_servers.Tools: "table, see tools",
    schema_servers.Timeouts: "table, see timeouts",
    schema_servers.Limits: "table, see limits",
    schema_servers.Sandbox: "table, see sandbox",
    schema_agents.MountTable: "table, see mount",
    schema_policy.Policy: "`[workspaces.NAME.policy]`",
    schema_policy.Rule: "rules",
    schema_policy.Rate: "table, see rate",
    schema_catalog.CatalogSource: "`[catalog.sources.NAME]`",
    schema_identity.Admission: "`[[identity.NAME.admit]]`",
    schema_agents.Grant: "`[workspaces.NAME.mcp.SERVER]` or the like",
}
_PLAIN: dict[type, str] = {
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.IntType: "whole number",
    msgspec.inspect.FloatType: "number",
    msgspec.inspect.StrType: "text",
}


def main() -> None:
    """Write the page to the path given, or to standard output."""
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page(), "utf-8")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
