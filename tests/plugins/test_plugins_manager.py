"""Plugins: what they bring is collected, and a broken one harms nobody else."""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mooring.config.plan import Variant
from mooring.launch.base import Launched
from mooring.nouns import InstanceKey, Problem
from mooring.observe.events import Event, Events
from mooring.plugins import hooks
from mooring.plugins.hooks import Context, hookimpl
from mooring.plugins.manager import collect, exporters, source_kinds

CONTEXT = Context(Path("/state"))


class FakeLauncher:
    """A launcher that is never started."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds

    @asynccontextmanager
    async def launch(self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]) -> AsyncIterator[Launched]:
        raise NotImplementedError
        yield


class Plugin:
    """Brings what it is told to, or raises it."""

    def __init__(self, launchers: Any = (), sinks: Any = ()) -> None:
        self.launchers, self.sinks = launchers, sinks
        self.told: list[Context] = []

    @hookimpl
    def mooring_launchers(self, context: Context) -> Any:
        self.told.append(context)
        if isinstance(self.launchers, Exception):
            raise self.launchers
        return self.launchers

    @hookimpl
    def mooring_event_sinks(self) -> Any:
        if isinstance(self.sinks, Exception):
            raise self.sinks
        return self.sinks


def test_what_plugins_bring_is_collected_in_their_order() -> None:
    process, image = FakeLauncher("process"), FakeLauncher("image", "remote")
    seen: list[str] = []
    first = Plugin([process], [lambda event: seen.append(f"1 {event.name}")])
    second = Plugin((image,), [lambda event: seen.append(f"2 {event.name}")])
    collected = collect({"mooring": first, "other": second}, CONTEXT)
    assert collected.launchers == (process, image)
    assert collected.by_kind() == {"process": process, "image": image, "remote": image}
    assert collected.problems == ()
    assert first.told == second.told == [CONTEXT]
    Events(collected.sinks).emit(Event("list.changed", 1.0))
    assert seen == ["1 list.changed", "2 list.changed"]


def test_no_plugins_bring_nothing() -> None:
    collected = collect({}, CONTEXT)
    assert (collected.launchers, collected.sinks, collected.problems) == ((), (), ())


def test_a_module_is_a_plugin_too_and_may_implement_only_some_hooks() -> None:
    module = types.ModuleType("fake_plugin")
    launcher = FakeLauncher("x")

    @hookimpl
    def mooring_launchers(context: Context) -> list[FakeLauncher]:
        return [launcher]

    module.mooring_launchers = mooring_launchers  # type: ignore[attr-defined]
    collected = collect({"fake": module, "nothing": types.ModuleType("nothing")}, CONTEXT)
    assert collected.launchers == (launcher,)
    assert collected.problems == ()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (Plugin(RuntimeError("boom")), "mooring_launchers failed: RuntimeError: boom"),
        (Plugin(sinks=KeyError("boom")), "mooring_event_sinks failed: KeyError: 'boom'"),
        (Plugin(None), "mooring_launchers failed: TypeError"),
        (Plugin(["no launcher"]), "mooring_launchers returned something else: str"),
        (Plugin(sinks=[7]), "mooring_event_sinks returned something else: int"),
    ],
)
def test_r28_one_raising_plugin_does_not_stop_boot_and_is_reported_by_name(broken: Plugin, said: str) -> None:
    """R28: one raising plugin does not stop boot."""
    good = FakeLauncher("process")
    for plugins in ({"bad": broken, "good": Plugin([good])}, {"good": Plugin([good]), "bad": broken}):
        collected = collect(plugins, CONTEXT)
        assert collected.by_kind() == {"process": good}
        (problem,) = collected.problems
        assert problem.level == "error"
        assert problem.message.startswith(f'plugin "bad": {said}')
        assert problem.path == "plugins.bad"


RAISING = """
from mooring.plugins import hookimpl

@hookimpl
def HOOK(context):
    raise RuntimeError("boom")
"""


def asked(hook: str, plugins: dict[str, object]) -> tuple[Problem, ...]:
    """The problems of whoever calls this hook."""
    if hook == "mooring_catalog_sources":
        return source_kinds(plugins, CONTEXT)[1]
    if hook == "mooring_exporters":
        return exporters(plugins, CONTEXT)[1]
    return collect(plugins, CONTEXT).problems


@pytest.mark.parametrize(
    "hook", [name for name in vars(hooks) if name.startswith("mooring_") and name != "mooring_mcp_servers"]
)
def test_r28_a_plugin_may_raise_in_any_hook_and_only_it_is_missed(hook: str) -> None:
    """R28: one raising plugin does not stop boot; each hook, by a plugin that is a module."""
    module = types.ModuleType("bad")
    exec(RAISING.replace("HOOK", hook), vars(module))
    (problem,) = asked(hook, {"bad": module, "good": Plugin([FakeLauncher("process")])})
    assert problem.message == f'plugin "bad": {hook} failed: RuntimeError: boom'


@pytest.mark.parametrize("trace", [True, False])
def test_each_call_of_a_hook_is_logged_when_tracing_is_on(caplog: pytest.LogCaptureFixture, trace: bool) -> None:
    context = Context("/state", trace)
    own, source = Plugin([FakeLauncher("process")], [lambda event: None]), SourcePlugin(FakeKind("one"))
    with caplog.at_level(logging.INFO):
        collect({"own": own}, context)
        source_kinds({"source": source}, context)
        exporters({"exporter": ExportPlugin(FakeExporter("one"))}, context)
    said = [record.getMessage().rpartition(" in ")[0] for record in caplog.records]
    assert said == trace * [
        'plugin "own": mooring_launchers brought 1',
        'plugin "own": mooring_event_sinks brought 1',
        'plugin "source": mooring_catalog_sources brought 1',
        'plugin "exporter": mooring_exporters brought 1',
    ]


def test_moorings_own_sinks_come_through_the_hook_and_are_not_switched_off() -> None:
    failing: list[str] = []

    def broken(event: Event) -> None:
        failing.append(event.name)
        raise OSError("the disk is full")

    events = Events(collect({"mooring": Plugin(sinks=[broken])}, CONTEXT).sinks)
    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            events.emit(Event("list.changed", 1.0))
    assert len(failing) == 2


def hook_with_unknown_argument() -> object:
    class Wrong:
        @hookimpl
        def mooring_launchers(self, nonsense: int) -> Any: ...

    return Wrong()


def hook_with_unknown_name() -> object:
    class Wrong:
        @hookimpl
        def mooring_launcherz(self) -> Any: ...

    return Wrong()


@pytest.mark.parametrize(
    ("make", "said"), [(hook_with_unknown_argument, "nonsense"), (hook_with_unknown_name, "mooring_launcherz")]
)
def test_hooks_that_do_not_fit_are_reported(make: Callable[[], object], said: str) -> None:
    good = FakeLauncher("process")
    collected = collect({"bad": make(), "good": Plugin([good])}, CONTEXT)
    assert collected.launchers == (good,)
    (problem,) = collected.problems
    assert '"bad"' in problem.message
    assert said in problem.message


def test_one_object_under_two_names_counts_once() -> None:
    plugin = Plugin([FakeLauncher("process")])
    collected = collect({"one": plugin, "two": plugin}, CONTEXT)
    assert len(collected.launchers) == 1
    assert [problem.path for problem in collected.problems] == ["plugins.two"]


def test_r28_a_kind_that_two_plugins_serve_stays_with_the_first_and_is_reported() -> None:
    """R28: name clashes are reported."""
    own, other = FakeLauncher("process"), FakeLauncher("process", "image")
    collected = collect({"mooring": Plugin([own]), "other": Plugin([other])}, CONTEXT)
    assert collected.by_kind() == {"process": own, "image": other}
    (problem,) = collected.problems
    assert problem.message == 'plugin "other": the kind "process" is served by the plugin "mooring" already'


def test_a_sink_that_raises_is_reported_once_and_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def broken(event: Event) -> None:
        calls.append("broken")
        raise RuntimeError("boom")

    collected = collect(
        {"bad": Plugin(sinks=[broken]), "good": Plugin(sinks=[lambda e: calls.append("good")])}, CONTEXT
    )
    events = Events(collected.sinks)
    with caplog.at_level(logging.ERROR):
        events.emit(Event("list.changed", 1.0))
        events.emit(Event("list.changed", 2.0))
    assert calls == ["broken", "good", "good"]
    assert [record.getMessage() for record in caplog.records] == [
        'plugin "bad": its event sink failed and is switched off'
    ]


def test_every_hook_has_one_sentence() -> None:
    specs = [spec for name, spec in vars(hooks).items() if name.startswith("mooring_")]
    assert len(specs) == 7
    for spec in specs:
        assert spec.__doc__
        assert spec.__doc__.count(".") == 1
        assert not asyncio.iscoroutinefunction(spec)


class FakeKind:
    """A kind of catalog source that is never read."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def read(self) -> None:
        raise NotImplementedError


class SourcePlugin:
    """Brings kinds of catalog sources, or raises."""

    def __init__(self, *kinds: Any) -> None:
        self.kinds = kinds

    @hookimpl
    def mooring_catalog_sources(self) -> Any:
        if self.kinds and isinstance(self.kinds[0], Exception):
            raise self.kinds[0]
        return self.kinds


def test_plugins_bring_kinds_of_catalog_sources() -> None:
    """R31: sources of other people's making; a broken plugin harms nobody else."""
    one, two = FakeKind("registry"), FakeKind("mine")
    plugins = {
        "mooring": SourcePlugin(one),
        "broken": SourcePlugin(ValueError("no")),
        "other": SourcePlugin(two, FakeKind("registry"), "nothing"),
    }
    kinds, problems = source_kinds(plugins, CONTEXT)
    assert kinds == {"registry": one, "mine": two}
    assert [problem.path for problem in problems] == ["plugins.broken", "plugins.other", "plugins.other"]


class FakeExporter:
    """An exporter that never runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def export(self, offer: Any) -> float | None:
        raise NotImplementedError


class ExportPlugin:
    """Brings these exporters, or raises."""

    def __init__(self, *exporters: Any) -> None:
        self.exporters = exporters

    @hookimpl
    def mooring_exporters(self, context: Context) -> Any:
        if isinstance(self.exporters[0], Exception):
            raise self.exporters[0]
        return self.exporters


def test_exporters_of_all_plugins_are_collected_once_a_name() -> None:
    """R28"""
    one, two = FakeExporter("one"), FakeExporter("two")
    plugins = {
        "first": ExportPlugin(one),
        "broken": ExportPlugin(ValueError("no")),
        "other": ExportPlugin(two, FakeExporter("one"), "nothing"),
    }
    found, problems = exporters(plugins, CONTEXT)
    assert found == (one, two)
    assert [problem.path for problem in problems] == ["plugins.broken", "plugins.other", "plugins.other"]
