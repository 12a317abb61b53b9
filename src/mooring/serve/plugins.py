"""Installed plugins in a daemon, a library or a verb: what is known of them, and those that run in this process.

Owned by ``serve.reload.Configuration``. Plugins that only bring MCP servers are never imported here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from mooring.nouns import Problem
from mooring.plugins import discovery
from mooring.plugins.found import Found, Installed
from mooring.plugins.hooks import Context
from mooring.plugins.manager import Collected, collect

if TYPE_CHECKING:
    from mooring.config.schema import Config
    from mooring.plugins.servers import Here


class Plugins:
    """The plugins of one process."""

    def __init__(self, state: str, keep: bool = True) -> None:
        """``state``: the state folder, where what is found is kept unless ``keep`` says otherwise."""
        self.own: dict[str, object] = {}
        """Mooring's own plugin objects, asked first."""
        self.objects: dict[str, object] = {}
        """Those that run in this process, by name, once they were ``collected``."""
        self.problems: tuple[Problem, ...] = ()
        """Of the configuration that was looked at last."""
        self._state = state
        self._keep = keep
        self._installed = discovery.known(state)
        self._collected: Collected | None = None
        self._imported: tuple[Found, ...] = ()

    @property
    def mark(self) -> str:
        """Changes when anything about the plugins does; "" while that is unknown."""
        if self._installed is None:
            return ""
        return msgspec.json.encode(self._installed).decode()

    @property
    def installed(self) -> Installed:
        """What is known of them."""
        return self._installed or Installed()

    def forget(self) -> None:
        """Look again next time."""
        self._installed = None

    def plugged(self, config: Config) -> Config:
        """The configuration with the servers of plugins; for ``config.load``. Blocks when plugins are looked for."""
        known, settings = self._installed, config.plugins
        if known is None or (known.disabled, known.trace) != (settings.disable, settings.trace):
            known = discovery.discover(self._state, settings.disable, settings.trace, self._keep)
        self._installed = known
        if not (known.plugins or known.gone or _mentions(config)):
            self.problems = ()
            return config
        from mooring.plugins.servers import plugged  # most people have none

        made = plugged(config, known, _here(config, self._state))
        self.problems = made.problems
        if self._keep:
            _write(made.files)
        return made.config

    @property
    def collected(self) -> Collected:
        """What all plugins bring that run in this process: asked for once."""
        if self._collected is None:
            problems: list[Problem] = []
            self.objects = {**self.own, **self._imports(problems)}
            found = collect(self.objects, self.context)
            self._collected = msgspec.structs.replace(found, problems=(*problems, *found.problems))
        return self._collected

    @property
    def context(self) -> Context:
        """What plugins are told."""
        return Context(self._state, self.installed.trace)

    def outdated(self) -> tuple[str, ...]:
        """What runs in this process and is installed otherwise by now: only a new process can load that."""
        now = {plugin.name: plugin for plugin in self.installed.in_daemon}
        then = {plugin.name: plugin for plugin in self._imported}
        names = [name for name in {**then, **now} if _code(then.get(name)) != _code(now.get(name))]
        return tuple(f"plugin {name}" for name in names)

    def _imports(self, problems: list[Problem]) -> Mapping[str, object]:
        self._imported = self.installed.in_daemon
        objects: dict[str, object] = {}
        for plugin in self._imported:
            from importlib.metadata import EntryPoint

            from mooring.plugins.found import GROUP
            from mooring.plugins.inspection import loaded, said

            name = f"{plugin.name} of {plugin.distribution}"
            try:
                objects[name] = loaded(EntryPoint(plugin.name, plugin.entry, GROUP))
            except Exception as error:
                problems.append(Problem("error", f'plugin "{name}": {said(error)}', f"plugins.{plugin.name}"))
        return objects


def _code(plugin: Found | None) -> object:
    return None if plugin is None else (plugin.distribution, plugin.distribution_version, plugin.hooks, plugin.files)


def _mentions(config: Config) -> bool:
    from mooring.config.schema_servers import PluginServer

    return any(isinstance(server, PluginServer) for server in config.mcp_servers.values())


def _here(config: Config, state: str) -> Here:
    import mooring
    from mooring.plugins.servers import Here

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    library = os.path.dirname(os.path.abspath(mooring.__file__))
    return Here(_engine(config.gateway.engine), sys.executable, version, state, library)


def _engine(wanted: str) -> bool:
    """Whether a container engine is installed. One that does not answer counts: what was to be confined does not run
    unconfined because a daemon is down."""
    import shutil

    return any(shutil.which(name) for name in ("podman", "docker") if wanted in ("auto", name))


def _write(files: Mapping[str, str]) -> None:
    """Write what is not there: the name of its folder is the digest of the content."""
    for path, text in files.items():
        if not os.path.exists(path):
            from mooring.config.files import write_atomically

            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            write_atomically(path, text.encode(), mode=0o600)
