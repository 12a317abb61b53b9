"""Asks plugins what they bring, at boot, and turns the answers into tuples.

``serve.app`` calls ``collect`` with Mooring's own plugin objects first; no plugin machinery runs after that. A plugin
that fails loses what it would have brought, is reported by name, and harms nobody else. ``plugins.inspection`` asks
``implemented`` and ``called`` about one plugin.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pluggy

from mooring.launch.base import Launcher
from mooring.nouns import Problem
from mooring.observe.events import Event, Sink
from mooring.plugins import hooks
from mooring.plugins.hooks import Guard, Resolver

if TYPE_CHECKING:
    from mooring.catalog.source import SourceKind
    from mooring.export.base import Exporter

_log = logging.getLogger(__name__)


class Collected(msgspec.Struct, frozen=True):
    """What all plugins bring together, in the order of the plugins."""

    launchers: tuple[Launcher, ...] = ()
    sinks: tuple[Sink, ...] = ()
    guards: tuple[tuple[str, Guard], ...] = ()
    """With the plugin's name."""
    resolvers: dict[str, Resolver] = {}
    problems: tuple[Problem, ...] = ()
    """What failed or clashed, for ``check``, ``plugins`` and the log."""

    def by_kind(self) -> dict[str, Launcher]:
        """The launcher of each kind; its keys are the kinds that can be started here."""
        return {kind: launcher for launcher in reversed(self.launchers) for kind in launcher.kinds}


def collect(plugins: Mapping[str, object], context: hooks.Context) -> Collected:
    """Call the hooks of ``plugins`` (name -> module or object), in their order. Never raises for a plugin's fault."""
    problems: list[Problem] = []
    manager = _register(plugins, problems)
    launchers: list[Launcher] = []
    taken: dict[str, str] = {}
    for plugin, launcher in _answers(manager.hook.mooring_launchers, context, _is_launcher, problems):
        problems += (
            _problem(plugin, f'the kind "{kind}" is served by the plugin "{taken[kind]}" already')
            for kind in launcher.kinds
            if taken.setdefault(kind, plugin) != plugin
        )
        launchers.append(launcher)
    sinks = [  # Mooring's own are not switched off: an audit that fails once must go on
        sink if plugin == hooks.PROJECT else _contained(plugin, sink)
        for plugin, sink in _answers(manager.hook.mooring_event_sinks, context, callable, problems)
    ]
    guards = tuple(_answers(manager.hook.mooring_call_guards, context, callable, problems))
    resolvers = _resolvers(manager.hook.mooring_secret_resolvers, context, problems)
    return Collected(tuple(launchers), tuple(sinks), guards, resolvers, tuple(problems))


def implemented(name: str, plugin: object) -> tuple[str, ...]:
    """The hooks that ``plugin`` implements. Raises what pluggy says of one that does not fit."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(plugin, name)
    manager.check_pending()
    return tuple(sorted(caller.name for caller in manager.get_hookcallers(plugin) or ()))


def called(plugin: object, hook: str, context: hooks.Context) -> Any:
    """The answer of one hook of one plugin. Raises what the plugin raises."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    manager.register(plugin)
    (answer,) = getattr(manager.hook, hook)(context=context)
    return answer


def _resolvers(hook: pluggy.HookCaller, context: hooks.Context, problems: list[Problem]) -> dict[str, Resolver]:
    found: dict[str, tuple[str, Resolver]] = {}
    for plugin, (name, resolver) in _answers(hook, context, _is_resolver, problems):
        if name in found:
            problems.append(_problem(plugin, f'secrets "{name}:" are found by the plugin "{found[name][0]}" already'))
        else:
            found[name] = plugin, resolver
    return {name: resolver for name, (_, resolver) in found.items()}


def _is_resolver(thing: Any) -> bool:
    return isinstance(thing[0], str) and callable(thing[1])


def source_kinds(
    plugins: Mapping[str, object], context: hooks.Context
) -> tuple[dict[str, SourceKind], tuple[Problem, ...]]:
    """The kinds of catalog sources that ``plugins`` bring, by name, and what failed or clashed."""
    taken = 'catalog sources of the kind "{}" are read by another plugin'
    return _named(plugins, context, "mooring_catalog_sources", ("kind", "read"), taken)


def exporters(
    plugins: Mapping[str, object], context: hooks.Context
) -> tuple[tuple[Exporter, ...], tuple[Problem, ...]]:
    """The exporters that ``plugins`` bring, and what failed or clashed."""
    taken = 'there is an exporter "{}" already'
    found, problems = _named(plugins, context, "mooring_exporters", ("name", "export"), taken)
    return tuple(found.values()), problems


def _named(
    plugins: Mapping[str, object], context: hooks.Context, hook: str, members: tuple[str, str], taken: str
) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """What a hook brings, by name, the first of each. ``members``: the attribute with the name, and a method."""
    name, method = members

    def fits(thing: Any) -> bool:
        return isinstance(getattr(thing, name, None), str) and callable(getattr(thing, method, None))

    problems: list[Problem] = []
    manager = _register(plugins, problems)
    found: dict[str, Any] = {}
    for plugin, thing in _answers(getattr(manager.hook, hook), context, fits, problems):
        if found.setdefault(getattr(thing, name), thing) is not thing:
            problems.append(_problem(plugin, taken.format(getattr(thing, name))))
    return found, tuple(problems)


def _register(plugins: Mapping[str, object], problems: list[Problem]) -> pluggy.PluginManager:
    """A manager that knows the hooks and those plugins whose hooks fit them."""
    manager = pluggy.PluginManager(hooks.PROJECT)
    manager.add_hookspecs(hooks)
    for name, plugin in plugins.items():
        try:
            manager.register(plugin, name)
            manager.check_pending()
        except Exception as error:
            if manager.has_plugin(name):
                manager.unregister(name=name)
            problems.append(_problem(name, str(error)))
    return manager


def _answers(
    hook: pluggy.HookCaller, context: hooks.Context, fits: Callable[[Any], bool], problems: list[Problem]
) -> Iterator[tuple[str, Any]]:
    """Every (plugin, thing) that a hook brings. Each plugin is called by itself, so that its failure stays its own."""
    for implementation in hook.get_hookimpls():
        name = implementation.plugin_name
        # A hook may leave its argument out.
        arguments = (context,) if implementation.argnames else ()
        try:
            began = time.perf_counter()
            answer = implementation.function(*arguments)
            things = list(cast(Iterable[Any], answer.items() if isinstance(answer, Mapping) else answer))
            if context.trace:
                took = (time.perf_counter() - began) * 1000
                _log.info('plugin "%s": %s brought %d in %.1f ms', name, hook.name, len(things), took)
        except Exception as error:
            problems.append(_problem(name, f"{hook.name} failed: {type(error).__name__}: {error}"))
            continue
        for thing in things:
            if fits(thing):
                yield name, thing
            else:
                problems.append(_problem(name, f"{hook.name} returned something else: {type(thing).__name__}"))


def _is_launcher(thing: Any) -> bool:
    kinds: Any = getattr(thing, "kinds", None)
    return isinstance(kinds, tuple) and callable(getattr(thing, "launch", None))


def _contained(plugin: str, sink: Sink) -> Sink:
    """The sink until it raises for the first time: then it is reported and gets nothing more."""
    working = True

    def contained(event: Event) -> None:
        nonlocal working
        if working:
            try:
                sink(event)
            except Exception:
                working = False
                _log.exception('plugin "%s": its event sink failed and is switched off', plugin)

    return contained


def _problem(plugin: str, message: str) -> Problem:
    return Problem("error", f'plugin "{plugin}": {message}', path=f"plugins.{plugin}")
