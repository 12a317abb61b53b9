"""Servers of plugins for an agent that runs in a container of its own: what to mount, and what to tell it.

``container_input`` is called where plugins are installed, ``merge`` inside the container. This module needs the
standard library only; Mooring's package is among the mounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

KEY = "plugin_mcp_servers"


def container_input(names: Iterable[str] | None = None, state: str | None = None) -> dict[str, Any]:
    """What an agent container needs for the servers of the installed plugins, ready for JSON::

        {"plugin_mcp_servers": {"voice": {"command": "python", "args": [...], "env": {"PYTHONPATH": ...}}},
         "mounts": [{"source": "/...", "target": "/workspace/plugins/voice/...", "read_only": True}]}

    ``plugin_mcp_servers`` is None when there is none. ``names``: only these servers. ``state``: the state folder whose
    knowledge of plugins is used; by default that of this user. No secret is in it: plugins declare none. What such an
    agent cannot start is left out: servers that speak HTTP, that have to run on the host, and those that need kwargs,
    since only a workspace gives some. What servers require has to be in the agent's image.
    """
    from os.path import abspath, dirname

    import mooring
    from mooring.config.home import Home
    from mooring.config.kwargs import placeholders
    from mooring.plugins import discovery, image

    state = Home.locate().state if state is None else state
    installed = discovery.known(state) or discovery.discover(state, keep=False)
    owners: dict[str, list[Any]] = {}
    for plugin in installed.usable:
        for server in plugin.servers:
            owners.setdefault(server.name, []).append(server)
    wanted = None if names is None else set(names)
    servers: dict[str, dict[str, Any]] = {}
    mounts: list[tuple[str, str]] = []
    for name, found in owners.items():
        if len(found) > 1 or (wanted is not None and name not in wanted):
            continue
        (server,) = found
        if server.port is not None or server.run == "host" or placeholders((*server.args, *server.env.values())):
            continue
        mounts += image.mounts(name, server)
        declared = {key: value for key, value in server.env.items() if key != "PYTHONPATH"}
        path = (image.import_path(name, server), image.LIBRARY, server.env.get("PYTHONPATH", ""))
        env = {**declared, "PYTHONPATH": ":".join(filter(None, path))}
        servers[name] = {"command": server.command, "args": list(server.args), "env": env}
    if servers:
        mounts.append((dirname(abspath(mooring.__file__)), f"{image.LIBRARY}/mooring"))
    return {
        KEY: servers or None,
        "mounts": [{"source": source, "target": target, "read_only": True} for source, target in mounts],
    }


def merge(mcp_servers: dict[str, Any], input_data: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> None:
    """Add the servers of ``input_data`` to ``ClaudeAgentOptions.mcp_servers``. A name that is there already stays as it
    is. ``environ``: the container's environment, whose ``PYTHONPATH`` is kept behind the plugin's."""
    if environ is None:
        from os import environ
    servers: Mapping[str, Any] = input_data.get(KEY) or {}
    for name, server in servers.items():
        env = dict(server["env"])
        if "PYTHONPATH" in env and environ.get("PYTHONPATH"):
            env["PYTHONPATH"] += f":{environ['PYTHONPATH']}"
        mcp_servers.setdefault(name, {"command": server["command"], "args": list(server["args"]), "env": env})
