"""Looking for plugins: in processes of their own, cheaply, and whatever they do."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest
from plugin_kit import SPEC, with_another

from mooring.plugins import discovery
from mooring.plugins.found import Found, Installed, Server
from mooring.testing.plugins import Site


def only(installed: Installed) -> Found:
    (plugin,) = installed.plugins
    return plugin


def found(state: Path, *disabled: str) -> Installed:
    return discovery.discover(str(state), disabled)


INSTANCE = SPEC + "plugin = Plugin()\n"
MODULE = """
from mooring.plugins import McpServerSpec, hookimpl
version = "0.1.0"
description = "Voice transcription."

@hookimpl
def mooring_mcp_servers(context):
    return [McpServerSpec(name="voice", command="python", args=["-m", "voice_plugin.mcp"])]
"""


@pytest.mark.parametrize(
    ("source", "attribute"),
    [(SPEC, ":Plugin"), (INSTANCE, ":plugin"), (MODULE, "")],
    ids=["class", "instance", "module"],
)
def test_r28_a_plugin_is_a_class_an_instance_or_a_module(
    site: Site, tmp_path: Path, source: str, attribute: str
) -> None:
    """R28: a plugin installed by entry point (class, instance or module)."""
    site.install(source, attribute=attribute)
    plugin = only(found(tmp_path))
    assert (plugin.name, plugin.distribution, plugin.distribution_version) == ("voice", "mooring-voice", "1.0")
    assert (plugin.version, plugin.description) == ("0.1.0", "Voice transcription.")
    (server,) = plugin.servers
    assert (server.name, server.command, server.args) == ("voice", "python", ("-m", "voice_plugin.mcp"))
    assert (plugin.skipped, plugin.problems, plugin.hooks) == ("", (), ())
    assert "voice_plugin" not in sys.modules


def test_r28_a_plugin_brings_several_servers(site: Site, tmp_path: Path) -> None:
    """R28: provides one or many servers."""
    site.install(
        SPEC.replace("return McpServerSpec(", "return [McpServerSpec(name='two', command='x'), McpServerSpec(")[:-1]
        + "]\n"
    )
    assert [server.name for server in only(found(tmp_path)).servers] == ["two", "voice"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise RuntimeError('boom')", "RuntimeError: boom"),
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("import sys; sys.exit(3)", "it called exit(3)"),
        ("import os; os._exit(7)", "exit code 7"),
        ("def broken(:", "SyntaxError"),
        ("Other = 1", "AttributeError"),
        ("class Plugin: pass", "implements no hook"),
        (SPEC.replace("return McpServerSpec(", "raise ValueError('no'); dict("), "ValueError: no"),
        (SPEC.replace("return McpServerSpec(", "return dict("), "returned something else"),
        (
            "from mooring.plugins import hookimpl\n"
            "class Plugin:\n @hookimpl\n def mooring_mcp_servers(self): raise ValueError('no')\n",
            "ValueError: no",
        ),
        (SPEC.replace("class", "print('chatter')\nclass"), None),
        (
            "from mooring.plugins import hookimpl\nclass Plugin:\n @hookimpl\n def mooring_nothing(self): ...\n",
            "mooring_nothing",
        ),
        (SPEC.replace("    name =", "    requires_mooring = '>=99'\n    name ="), "it needs Mooring >=99; this is"),
        (SPEC.replace("    name =", "    requires_mooring = 'new'\n    name ="), "is not a set of versions"),
    ],
)
def test_r28_a_plugin_that_fails_is_skipped_with_the_reason_and_the_others_are_there(
    site: Site, tmp_path: Path, source: str, said: str | None
) -> None:
    """R28 R29: one raising plugin does not stop boot; the required version of the product is checked."""
    site.install(source)
    site.install(SPEC.replace('"voice"', '"good"'), name="good", module="good_plugin", distribution="good")
    by_name = {plugin.name: plugin for plugin in found(tmp_path).plugins}
    assert [server.name for server in by_name["good"].servers] == ["good"]
    if said is None:
        assert by_name["voice"].skipped == ""
    else:
        assert said in by_name["voice"].skipped


def test_a_plugin_that_never_returns_is_given_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "SECONDS", 1.0)
    site.install("import time; time.sleep(60)")
    assert only(found(tmp_path)).skipped == "it was not imported within 1 s"


def test_an_archive_on_the_import_path_is_no_folder_of_packages(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "library.zip"
    archive.write_bytes(b"PK")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(archive), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.syspath_prepend(archive)
    site.install(SPEC)
    assert only(found(tmp_path)).name == "voice"


def test_r29_a_plugin_for_another_mooring_is_not_even_imported(site: Site, tmp_path: Path) -> None:
    """R29: the required product version is checked with a clear message."""
    site.install("raise RuntimeError", requires=("mooring>=99", "other; extra == 'x'"))
    assert only(found(tmp_path)).skipped.startswith("it needs Mooring >=99; this is ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("name='Not Valid'", "Not Valid"),
        ("command=''", "command is empty"),
        ("command=7", "Expected `str`"),
        ("args='-m x'", "lists of text"),
        ("env={'A': 1}", "Expected `str`"),
        ("host_source='/nowhere/at/all'", "host_source is no folder"),
        ("requirements=['-r x']", "is not a requirement"),
        ("packages=['a; rm']", "is not the name of a Debian package"),
        ("run='cloud'", "Invalid enum value"),
        ("port=70000", "<= 65535"),
    ],
)
def test_r28_a_spec_that_is_not_valid_is_told_and_the_others_are_used(
    site: Site, tmp_path: Path, change: str, said: str
) -> None:
    """R28: what does not validate is reported."""
    given = {"name": "'bad'", "command": "'x'"}
    key, _, value = change.partition("=")
    arguments = ", ".join(f"{name}={text}" for name, text in {**given, key: value}.items())
    site.install(with_another(arguments))
    plugin = only(found(tmp_path))
    assert [server.name for server in plugin.servers] == ["voice"]
    (problem,) = plugin.problems
    assert said in problem


def test_r28_two_of_one_name_are_both_told_and_neither_is_used(site: Site, tmp_path: Path) -> None:
    """R28: name clashes are reported."""
    site.install(SPEC)
    site.install(SPEC, module="other_plugin", distribution="other")
    first, second = found(tmp_path).plugins
    assert '"voice" of other is named so too' in first.skipped
    assert '"voice" of mooring-voice is named so too' in second.skipped
    other = found(tmp_path, "other").plugins
    assert [(plugin.distribution, plugin.skipped) for plugin in other] == [
        ("mooring-voice", ""),
        ("other", "it is disabled in [plugins]"),
    ]


def test_r28_a_server_that_two_distributions_bring_is_told_of_both_and_their_others_are_used(
    site: Site, tmp_path: Path
) -> None:
    """R28: name clashes are reported."""
    site.install(SPEC)
    site.install(
        with_another("name='own', command='x'"), name="other", module="other_plugin", distribution="mooring-other"
    )
    by_name = {plugin.name: plugin for plugin in found(tmp_path).plugins}
    assert [plugin.skipped for plugin in by_name.values()] == ["", ""]
    (first,), (second,) = by_name["voice"].problems, by_name["other"].problems
    assert 'its server "voice" is not offered: "other" of mooring-other brings one of that name too' in first
    assert '[mcp_servers.voice] plugin = "voice"' in first
    assert '"voice" of mooring-voice' in second


def test_looking_at_plugins_is_logged_when_tracing_is_on(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site.install(SPEC)
    site.install("raise RuntimeError('boom')", name="bad", module="bad_plugin", distribution="bad")
    with caplog.at_level(logging.INFO):
        discovery.discover(str(tmp_path), trace=True)
    said = sorted(record.getMessage() for record in caplog.records)
    assert [(text.partition(": looked")[0], text.rpartition("ms: ")[2]) for text in said] == [
        ('plugin "bad" of bad', "RuntimeError: boom"),
        ('plugin "voice" of mooring-voice', "1 servers, 0 hooks"),
    ]


def test_what_was_disabled_stays_so_for_whoever_does_not_know_the_configuration(site: Site, tmp_path: Path) -> None:
    site.install(SPEC)
    found(tmp_path, "mooring-voice")
    assert discovery.discover(str(tmp_path), keep=False).usable == ()


def test_what_is_disabled_is_not_imported(site: Site, tmp_path: Path) -> None:
    mark = tmp_path / "imported"
    site.install(f"open({str(mark)!r}, 'w')\n" + SPEC)
    found(tmp_path, "voice")
    assert not mark.exists()
    assert [server.name for server in only(found(tmp_path)).servers] == ["voice"]
    assert mark.exists()


def test_what_was_found_holds_until_something_changes(site: Site, tmp_path: Path) -> None:
    package = site.install(SPEC)
    assert discovery.known(str(tmp_path)) is None
    first = found(tmp_path)
    assert discovery.known(str(tmp_path)) == first
    assert (tmp_path / discovery.FILE).stat().st_mode & 0o077 == 0
    source = package / "__init__.py"
    os.utime(source, ns=(1, 1))
    assert discovery.known(str(tmp_path)) is None
    found(tmp_path)
    site.install(SPEC, version="1.1")
    assert discovery.known(str(tmp_path)) is None
    again = only(found(tmp_path))
    assert again.distribution_version == "1.1"
    assert again.servers[0].source != first.plugins[0].servers[0].source


def test_a_server_that_went_is_remembered_with_its_plugin(site: Site, tmp_path: Path) -> None:
    site.install(SPEC)
    found(tmp_path)
    site.remove("mooring-voice")
    gone = found(tmp_path)
    assert (gone.plugins, gone.gone) == ((), {"voice": "voice"})
    site.install(SPEC)
    assert found(tmp_path).gone == {}


def test_the_code_beside_a_plugin_counts_for_its_servers(site: Site, tmp_path: Path) -> None:
    package = site.install(SPEC)

    def source() -> Server:
        return only(found(tmp_path)).servers[0]

    before = source()
    (package / "mcp.py").write_text("print()")
    changed = source()
    assert changed.source != before.source
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert source() == changed


def test_a_broken_file_of_what_was_found_is_as_none(tmp_path: Path) -> None:
    (tmp_path / discovery.FILE).write_text("{")
    assert discovery.known(str(tmp_path)) is None
    assert found(tmp_path).plugins == ()
