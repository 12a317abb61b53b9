"""From TOML values to ``schema`` structs, with errors that name the key and say what to write. Pure.

Called by ``config.load`` with the merged tables of all files. Errors carry a key path; the caller adds file and line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from mooring.config import names
from mooring.config.durations import decode as decode_duration
from mooring.config.fault import Fault
from mooring.config.schema import Config, Gateway, LiteLLM, Workspace
from mooring.config.schema_agents import Agent, AgentPool, Grant, Layer, MountTable, Team
from mooring.config.schema_base import Kwarg, Path, Table
from mooring.config.schema_catalog import Catalog, CatalogSource, Plugins
from mooring.config.schema_identity import Issuer
from mooring.config.schema_policy import Audit, Telemetry
from mooring.config.schema_servers import SERVER_KINDS, AnyServer, CommandServer, ImageServer, PluginServer, Sandbox

T = TypeVar("T")
S = TypeVar("S", bound=Table)
L = TypeVar("L", bound=Layer)
_INFINITE = (float("inf"), float("-inf"))


def config(tables: dict[str, Any]) -> Config:
    """The whole configuration. Raises Fault."""
    _only(tables, Config.__struct_fields__, ())
    return Config(
        gateway=_table(tables.get("gateway", {}), Gateway, ("gateway",)),
        plugins=_table(tables.get("plugins", {}), Plugins, ("plugins",)),
        mcp_servers=_named(tables, "mcp_servers", _server, names.server_fault),
        mcp_groups=_named(tables, "mcp_groups", _group, names.server_fault),
        mcp_presets=_named(tables, "mcp_presets", _kwargs, names.plain_fault),
        workspaces=_named(tables, "workspaces", _layer(Workspace), names.plain_fault),
        identity=_named(tables, "identity", _issuer, names.plain_fault),
        audit=_table(tables.get("audit", {}), Audit, ("audit",)),
        catalog=_catalog(tables.get("catalog", {}), ("catalog",)),
        agent_pool=_layer(AgentPool)(tables.get("agent_pool", {}), ("agent_pool",)),
        teams=_named(tables, "teams", _layer(Team), names.plain_fault),
        agents=_named(tables, "agents", _layer(Agent), names.plain_fault),
        litellm=_table(tables["litellm"], LiteLLM, ("litellm",)) if "litellm" in tables else None,
        telemetry=_table(tables["telemetry"], Telemetry, ("telemetry",)) if "telemetry" in tables else None,
    )


def _named(
    tables: dict[str, Any], table: str, each: Callable[[Any, Path], T], fault: Callable[[str], str]
) -> dict[str, T]:
    found: dict[str, T] = {}
    for name, value in _mapping(tables.get(table, {}), (table,)).items():
        if message := fault(name):
            raise Fault(message, (table, name))
        found[name] = each(value, (table, name))
    return found


def _catalog(value: Any, path: Path) -> Catalog:
    table = _mapping(value, path)
    _only(table, Catalog.__struct_fields__, path)
    place = (*path, "sources")
    sources: dict[str, CatalogSource] = {}
    for name, source in _mapping(table.get("sources", {}), place).items():
        if message := names.server_fault(name):
            raise Fault(message, (*place, name))
        sources[name] = _table(source, CatalogSource, (*place, name))
    plain = _table({key: value for key, value in table.items() if key != "sources"}, Catalog, path)
    return msgspec.structs.replace(plain, sources=sources)


def _server(value: Any, path: Path) -> AnyServer:
    table = _mapping(value, path)
    present = [kind for kind in SERVER_KINDS if kind in table]
    if "plugin" in present:
        present = ["plugin"]  # which may be given another image
    if not present:
        hint = " (a dockerfile goes with the name of the image it makes)" if "dockerfile" in table else ""
        for key in table:
            hint = names.did_you_mean(key, SERVER_KINDS) or hint
        raise Fault(f"a server needs one of {', '.join(SERVER_KINDS)}{hint}", path)
    if len(present) > 1:
        raise Fault(f"a server has only one of {' and '.join(present)}", (*path, present[1]))
    kind = present[0]
    for key in table:
        owners = [other for other, struct in SERVER_KINDS.items() if key in struct.__struct_fields__]
        if owners and kind not in owners:
            raise Fault(
                f'"{key}" is for servers with {" or ".join(owners)}; "{path[-1]}" has {kind}',
                (*path, key),
            )
    server: AnyServer = _table(table, SERVER_KINDS[kind], path)
    _check_kwargs(server.defaults, (*path, "defaults"))
    _check_variables(table, path)
    if isinstance(server, ImageServer | PluginServer):
        _check_image(server, path)
    if isinstance(server, CommandServer):
        _check_sandbox(server, path)
    return server


def _check_variables(table: dict[str, Any], path: Path) -> None:
    for field in ("env", "secrets"):
        for name in table.get(field, ()):
            if message := names.plain_fault(name):
                raise Fault(message, (*path, field, name))
    for name in table.get("secrets", ()):
        if name in table.get("env", ()):
            raise Fault(f'"{name}" is in env too', (*path, "secrets", name))
        if name in table.get("credentials", ()):
            raise Fault(f'"{name}" is in credentials too', (*path, "secrets", name))


def _check_image(server: ImageServer | PluginServer, path: Path) -> None:
    for position, volume in enumerate(server.volumes):
        parts = volume.split(":")
        if len(parts) not in (2, 3) or not all(parts) or parts[1][0] not in "/{":
            raise Fault(
                f'"{volume}" is not a volume; write source:/target or source:/target:ro', (*path, "volumes", position)
            )
    _check_network(server.network, path)


def _check_sandbox(server: CommandServer, path: Path) -> None:
    _check_network(server.network, path)
    paths = server.sandbox.paths if isinstance(server.sandbox, Sandbox) else ()
    for position, written in enumerate(paths):
        if not written.removesuffix(":ro").strip("/"):
            raise Fault("the whole file system is no sandbox; name folders", (*path, "sandbox", "paths", position))


def _check_network(network: str | tuple[str, ...], path: Path) -> None:
    if isinstance(network, str):
        return
    from mooring.config.peers import parse_peer  # most configurations have no list

    for position, peer in enumerate(network):
        try:
            parse_peer(peer)
        except ValueError as error:
            raise Fault(str(error), (*path, "network", position)) from None


def _issuer(value: Any, path: Path) -> Issuer:
    return _table(value, Issuer, path)


def _group(value: Any, path: Path) -> tuple[str, ...]:
    return _convert(value, tuple[str, ...], path)


def _kwargs(value: Any, path: Path) -> dict[str, Kwarg]:
    table = _mapping(value, path)
    kwargs = {key: _convert(item, Kwarg, (*path, key)) for key, item in table.items()}
    _check_kwargs(kwargs, path)
    return kwargs


def _check_kwargs(kwargs: dict[str, Kwarg], path: Path) -> None:
    for key, value in kwargs.items():
        if message := names.plain_fault(key.removesuffix("+")):
            raise Fault(message, (*path, key))
        if key in names.RESERVED_KWARGS:
            raise Fault(f'"{key}" is a reserved word and cannot be a kwarg', (*path, key))
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, float) and (item in _INFINITE or item != item):
                raise Fault("a kwarg is a finite number", (*path, key))


def _layer(struct: type[L]) -> Callable[[Any, Path], L]:
    def layer(value: Any, path: Path) -> L:
        table = dict(_mapping(value, path))
        grants = _mapping(table.pop("mcp", {}), (*path, "mcp"))
        plain = _table(table, struct, path)
        made = {server: _grant(grant, (*path, "mcp", server)) for server, grant in grants.items()}
        return msgspec.structs.replace(plain, mcp=made)

    return layer


def _grant(value: Any, path: Path) -> Grant:
    table = dict(_mapping(value, path))
    presets = _convert(table.pop("presets", ()), tuple[str, ...], (*path, "presets"))
    mount = _table(table.pop("mount", {}), MountTable, (*path, "mount"))
    return Grant(presets=presets, mount=mount, kwargs=_kwargs(table, path))


def _mapping(value: Any, path: Path) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Fault(f"expected a table, got {_word(value)}", path)
    return value  # pyright: ignore[reportUnknownVariableType] -- TOML keys are text


def _word(value: Any) -> str:
    words = ((list, "a list"), (str, "text"), (bool, "true or false"), (int | float, "a number"))
    return next((word for kind, word in words if isinstance(value, kind)), "a date or time")


def _only(table: dict[str, Any], known: tuple[str, ...], path: Path) -> None:
    for key in table:
        if key not in known:
            raise Fault(f'unknown key "{key}"{names.did_you_mean(key, known)}', (*path, key))


def _table(value: Any, struct: type[S], path: Path) -> S:
    table = _mapping(value, path)
    _only(table, struct.__struct_encode_fields__, path)
    return _convert(table, struct, path)


def _convert(value: Any, kind: Any, path: Path) -> Any:
    try:
        return msgspec.convert(value, kind, dec_hook=decode_duration)
    except msgspec.ValidationError as error:
        from mooring.config import explain  # errors only

        message, deeper = explain.explain(error, value, kind)
        raise Fault(message, (*path, *deeper)) from None
