"""The whole story of a plugin, with a real installer and a real daemon: written, installed, called, removed, gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from plugin_kit import LIMIT, SPEC, Venv, with_another

from mooring.facade import Mooring
from mooring.testing import wait_for
from mooring.testing.daemon import Daemon, daemon, launched, server, write_config
from mooring.testing.plugins import Site

HOST = {"plugins": {"run": "host"}}
GRANTED = {"w": {"mcp_servers": ["greeter", "echo"]}}
VOICE_SERVER = """
import voice_plugin
from mcp.server import MCPServer  # the library, though this file is called mcp.py

server = MCPServer("voice")

@server.tool()
def transcribe_voice(path: str) -> str:
    return f"{path}: {voice_plugin.Plugin.name}"

if __name__ == "__main__":
    server.run("stdio")
"""


@pytest.fixture
def project(venv: Venv, tmp_path: Path) -> Path:
    """A plugin as the template writes it."""
    folder = tmp_path / "project"
    done = venv.mooring(tmp_path, "plugins", "new", "greeter", "--into", str(folder), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["folder"] == str(folder)
    return folder


@asynccontextmanager
async def running(venv: Venv, home: Path) -> AsyncGenerator[Daemon]:
    """A daemon of that environment, with one server besides the plugin's."""
    home.mkdir(exist_ok=True)
    write_config(home / "mooring.toml", {"echo": server()}, {"w": {"mcp_servers": ["*"]}}, **HOST)
    async with launched(home, venv.python) as found:
        yield found


async def tools(mooring: Mooring, workspace: str = "w") -> set[str]:
    return {tool.name for tool in await mooring.tools(workspace)}


async def text(mooring: Mooring, tool: str, **arguments: Any) -> str:
    return (await mooring.call("w", tool, arguments))["content"][0]["text"]


async def test_r29_r30_a_plugin_is_installed_called_and_removed_again(
    venv: Venv, project: Path, tmp_path: Path
) -> None:
    """R29 R30: uninstall makes the tools disappear; the template's project runs end to end."""
    home = tmp_path / "home"
    async with running(venv, home) as found:
        mooring = found.mooring
        await text(mooring, "echo_echo", text="hi")
        (before,) = await found.rows("echo")
        assert "greeter_greet" not in await tools(mooring)

        venv.install(project)
        try:
            report = await mooring.reload()
            assert (report.applied, report.added) == (True, ("greeter",))
            assert await text(mooring, "greeter_greet", name="Ada") == "Hello, Ada!"
            async with await found.client("w") as client:
                await client.open()
                answer = await client.call("greeter_greet", {"name": "Bea"})
                assert answer["content"][0]["text"] == "Hello, Bea!"
            listed = json.loads(venv.mooring(home, "plugins", "--json").stdout)
            assert [(row["name"], row["servers"], row["state"]) for row in listed] == [("greeter", ["greeter"], "ok")]

            source = project / "src" / "mooring_greeter" / "server.py"
            source.write_text(source.read_text().replace("Hello", "Good day"))
            report = await mooring.reload()
            assert "greeter" in report.changed
            assert await text(mooring, "greeter_greet", name="Ada") == "Good day, Ada!"
        finally:
            venv.uninstall("mooring-greeter")
        assert "greeter" in (await mooring.reload()).removed
        assert "greeter_greet" not in await tools(mooring)
        (after,) = await found.rows("echo")
        assert (after.pid, after.state) == (before.pid, "ready")


async def test_r29_a_workspace_that_names_a_removed_plugin_goes_on_without_it(
    venv: Venv, project: Path, tmp_path: Path
) -> None:
    """R29: uninstall makes the tools disappear."""
    home = tmp_path / "home"
    home.mkdir()
    venv.install(project)
    try:
        write_config(home / "mooring.toml", {"echo": server()}, GRANTED, **HOST)
        async with launched(home, venv.python) as found:
            assert await text(found.mooring, "greeter_greet", name="Ada") == "Hello, Ada!"
    finally:
        venv.uninstall("mooring-greeter")
    async with launched(home, venv.python) as found:
        assert await text(found.mooring, "echo_echo", text="hi") == '{"text":"hi"}'
        assert "greeter_greet" not in await tools(found.mooring)
        (row,) = await found.rows("greeter")
        assert "is not installed" in row.reason


@pytest.mark.parametrize("name", ["greeter", "3d-printing_of-many_parts"])
def test_r30_the_templates_project_is_clean(venv: Venv, tmp_path: Path, name: str) -> None:
    """R30: for every name that a server may have."""
    folder = tmp_path / "project"
    assert venv.mooring(tmp_path, "plugins", "new", name, "--into", str(folder)).returncode == 0
    for check in (("check",), ("format", "--check")):
        argv = [sys.executable, "-m", "ruff", *check, str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_r30_the_commands_of_the_templates_readme_work(venv: Venv, project: Path, tmp_path: Path) -> None:
    """R30: its own tests among them; as they are written, one after the other."""
    home, programs = tmp_path / "home", tmp_path / "programs"
    for folder in (home, programs):
        folder.mkdir()
    write_config(home / "mooring.toml", {}, **HOST)
    for program in ("mooring", "pytest", "ruff"):
        file = programs / program
        file.write_text(f'#!/bin/sh\nexec {venv.python} -m {program} "$@"\n')
        file.chmod(0o755)
    env = {**os.environ, "MOORING_HOME": str(home), "PATH": f"{programs}:{os.environ['PATH']}", "PYTEST_ADDOPTS": ""}
    lines = [line.strip() for line in (project / "README.md").read_text().splitlines() if line.startswith("    ")]
    install, *commands = (line.partition("#")[0].strip() for line in lines)
    assert install == "pip install -e '.[test]'"
    assert len(commands) == 5
    venv.install(project)
    try:
        for command in commands:
            argv, until = ("/bin/sh", "-c", command), time.monotonic() + LIMIT
            while True:
                done = subprocess.run(
                    argv, cwd=project, env=env, capture_output=True, text=True, timeout=LIMIT, check=False
                )
                if "is still starting" not in done.stderr or time.monotonic() > until:
                    break  # a machine under load needs more than the three seconds that a call waits
            assert done.returncode == 0, command + done.stdout + done.stderr
        assert done.stdout == "Hello, Ada!\n"
    finally:
        venv.mooring(home, "stop")
        venv.uninstall("mooring-greeter")


def test_the_template_writes_over_nothing_and_takes_names_of_servers_only(venv: Venv, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    done = venv.mooring(tmp_path, "plugins", "new", "greeter", "--into", str(tmp_path / "there"))
    assert (done.returncode, "is not empty" in done.stderr) == (2, True)
    for name in ("Not Valid", "ends-with-"):
        done = venv.mooring(tmp_path, "plugins", "new", name, "--into", str(tmp_path / "new"))
        assert done.returncode == 2
    assert not (tmp_path / "new").exists()


async def test_a_plugins_own_mcp_module_does_not_hide_the_library(site: Site, tmp_path: Path) -> None:
    host_source = "            host_source=__import__('pathlib').Path(__file__).parent,\n        )\n"
    package = site.install(SPEC.rstrip()[:-1] + ",\n" + host_source)
    (package / "mcp.py").write_text(VOICE_SERVER)
    async with daemon(tmp_path, {}, **HOST) as found:
        assert await text(found.mooring, "voice_transcribe_voice", path="a.wav") == "a.wav: voice"


async def test_a_server_that_speaks_http_is_given_a_free_port(site: Site, tmp_path: Path) -> None:
    """Two of them, at the same time."""
    source = SPEC.replace('"voice_plugin.mcp"]', '"voice_plugin.mcp", "{port}"], port=8000').rstrip()[:-1]
    package = site.install(source + ", host_source=__file__.rpartition('/')[0])\n")
    run = 'server.run("streamable-http", port=int(__import__("sys").argv[1]))'
    (package / "mcp.py").write_text(VOICE_SERVER.replace('server.run("stdio")', run))
    workspaces = {"w": {"mcp_servers": ["voice"]}, "v": {"mcp_servers": ["voice"]}}
    servers = {"voice": {"plugin": "voice", "sharing": "workspace"}}
    async with daemon(tmp_path, servers, workspaces, **HOST) as found:
        assert await text(found.mooring, "voice_transcribe_voice", path="a.wav") == "a.wav: voice"
        answer = await found.mooring.call("v", "voice_transcribe_voice", {"path": "b.wav"})
        assert answer["content"][0]["text"] == "b.wav: voice"
        first, second = await found.rows("voice")
        assert (first.state, second.state) == ("ready", "ready")
        assert first.pid != second.pid


async def test_r28_a_plugin_that_breaks_stops_nobody_who_was_given_its_server(site: Site, tmp_path: Path) -> None:
    """R28: one raising plugin does not stop boot; also where nothing is known of it yet."""
    site.install("raise RuntimeError('boom')")
    workspaces = {"w": {"mcp_servers": ["echo", "voice"]}}
    async with daemon(tmp_path, {"echo": server()}, workspaces, **HOST) as found:
        assert await text(found.mooring, "echo_echo", text="hi") == '{"text":"hi"}'
        (row,) = await found.rows("voice")
        assert row.reason == 'the plugin "voice" of mooring-voice cannot be used: RuntimeError: boom'


async def test_r28_a_broken_plugin_is_told_with_its_package_and_harms_nobody(site: Site, tmp_path: Path) -> None:
    """R28: one raising plugin does not stop boot."""
    site.install("raise RuntimeError('boom')")
    async with daemon(tmp_path, {"echo": server()}, **HOST) as found:
        assert await text(found.mooring, "echo_echo", text="hi") == '{"text":"hi"}'
        code, out, _ = await found.command("check", "--json")
        assert code == 2
        (problem,) = json.loads(out)["problems"]
        assert problem["message"] == 'plugin "voice" of mooring-voice 1.0: RuntimeError: boom'
        code, out, _ = await found.command("plugins")
        assert code == 1
        assert "RuntimeError: boom" in out
    write_config(tmp_path / "mooring.toml", {"echo": server()}, plugins={"disable": ["mooring-voice"]})
    async with launched(tmp_path) as found:
        code, out, _ = await found.command("check", "--json")
        assert code == 0
        assert json.loads(out)["problems"] == []


IN_DAEMON = """
import pathlib
from mooring.errors import Refused
from mooring.plugins import hookimpl
from mooring.wire.jsonrpc import Answer

class Plugin:
    @hookimpl
    def mooring_call_guards(self, context):
        async def guard(call, params, proceed):
            if b"forbidden" in params:
                raise Refused(f"{call.tool} must not say that")
            return await proceed(params.replace(b"hi", b"ho"))
        return [guard]

    @hookimpl
    def mooring_event_sinks(self, context):
        file = pathlib.Path(context.state) / "events"
        def sink(event):
            with file.open("a") as handle:
                handle.write(event.name + "\\n")
        return [sink]

    @hookimpl
    def mooring_secret_resolvers(self):
        return {"vault": {"kv/token": "from-the-vault"}.get}
"""


async def test_guards_sinks_and_resolvers_of_a_plugin_work_in_the_daemon(site: Site, tmp_path: Path) -> None:
    site.install(IN_DAEMON)
    secret = {"TOKEN": {"plugin": "vault:kv/token"}}
    async with daemon(tmp_path, {"echo": server(secrets=secret)}, plugins={"trace": True}) as found:
        assert await text(found.mooring, "echo_echo", text="hi") == '{"text":"ho"}'
        refused = await found.mooring.call("w", "echo_echo", {"text": "forbidden"})
        assert refused["isError"]
        assert "echo_echo must not say that" in refused["content"][0]["text"]
        code, out, err = await found.command("check")
        assert code == 0, out + err
        assert "from-the-vault" not in out + found.output
        assert "mooring_call_guards brought 1" in found.output
        site.install(IN_DAEMON, version="1.1")
        assert (await found.mooring.reload()).needs_restart == ("plugin voice",)
    assert "call.finished" in (tmp_path / "state" / "events").read_text()


async def test_a_secret_that_no_plugin_finds_is_told(tmp_path: Path) -> None:
    servers = {"echo": server(secrets={"TOKEN": {"plugin": "vault:kv/token"}})}
    async with daemon(tmp_path, servers) as found:
        (row,) = await found.rows("echo")
        assert 'no plugin finds secrets named "vault:"' in row.reason


async def listed(found: Daemon) -> None:
    """Until all servers were started once and say what they offer."""

    async def known() -> bool:
        rows = await found.mooring.ps()
        assert all(row.state != "backoff" for row in rows), [row.reason for row in rows]
        return all(row.tools for row in rows)

    await wait_for(known, LIMIT, 0.05)


REQUIRING = (
    SPEC.replace("return McpServerSpec(", "return [McpServerSpec(name=name, requirements=['{}'], ")
    .replace('name="voice", command', "command")
    .rstrip()[:-1]
    + ", host_source=__file__.rpartition('/')[0]) for name in ('voice', 'again')]\n"
)
"""Two servers that require the same."""


@pytest.mark.network
async def test_r29_what_a_server_requires_is_installed_for_it_alone(site: Site, tmp_path: Path) -> None:
    """R29: declared packages are had, once for all who want the same; what cannot be had is told."""
    package = site.install(REQUIRING.format("cowsay==6.1"))
    (package / "mcp.py").write_text(
        VOICE_SERVER.replace('f"{path}: {voice_plugin.Plugin.name}"', "__import__('cowsay').__version__")
    )

    async def made(found: Daemon) -> int:
        """How often an environment was made."""
        lines = [line for name in ("voice", "again") for line in await found.mooring.logs(name, 2000)]
        return sum("making an environment for cowsay==6.1" in line for line in lines)

    async with daemon(tmp_path, {}, **HOST) as found:
        await listed(found)
        assert await text(found.mooring, "voice_transcribe_voice", path="") == "6.1"
        assert await text(found.mooring, "again_transcribe_voice", path="") == "6.1"
        assert await made(found) == 1
        (environment,) = (tmp_path / "state" / "plugins" / "environments").iterdir()
        await found.mooring.restart("voice")
        assert await text(found.mooring, "voice_transcribe_voice", path="") == "6.1"
        assert await made(found) == 1
        (environment / "mooring-ready").unlink()  # as if the making had been cut off
        await found.mooring.restart("voice")
        await listed(found)
        assert await text(found.mooring, "voice_transcribe_voice", path="") == "6.1"
        assert await made(found) == 2
        site.install(REQUIRING.format("no-such-package-anywhere-at-all==9"))
        await found.mooring.reload()

        async def failed() -> bool:
            return any("could not be installed" in row.reason for row in await found.rows("voice"))

        await wait_for(failed, LIMIT, 0.05)
        answer = await found.mooring.call("w", "voice_transcribe_voice", {"path": ""})
        assert answer["isError"]
        assert "no-such-package-anywhere-at-all" in answer["content"][0]["text"]


async def test_without_an_engine_it_runs_on_this_machine(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R39: there was no isolation to lose; the plugin that wants a container all the same is told what is missing."""
    monkeypatch.setenv("PATH", "/nowhere")
    package = site.install(
        with_another("name='other', command='x', run='container'").replace(
            '"-m", "voice_plugin.mcp"]', '"-m", "voice_plugin.mcp"], host_source=__file__.rpartition("/")[0]'
        )
    )
    (package / "mcp.py").write_text(VOICE_SERVER)
    async with daemon(tmp_path, {}) as found:
        assert await text(found.mooring, "voice_transcribe_voice", path="a.wav") == "a.wav: voice"
        said = await text(found.mooring, "other_anything")
        assert "There is no container engine: podman is not installed; docker is not installed" in said
        assert '[plugins] run = "host"' in said


async def test_a_plugins_server_is_shared_sleeps_and_comes_back_like_any_other(site: Site, tmp_path: Path) -> None:
    """R28: one process for two workspaces, put away when idle, started again by the next call, and after a crash."""
    spec = f"return McpServerSpec(name='voice', command={sys.executable!r}, args=['-m', 'mooring.testing.echo'])\n"
    site.install(SPEC.split("return ")[0] + spec)
    rooms = {"w": {"mcp_servers": ["voice"]}, "v": {"mcp_servers": ["voice"]}}
    table = {"plugin": "voice", "idle_timeout": 1}
    async with daemon(tmp_path, {"voice": table}, rooms) as found:

        async def pid(workspace: str) -> str:
            return (await found.mooring.call(workspace, "voice_pid", {}))["content"][0]["text"]

        first = await pid("w")
        assert await pid("v") == first

        async def state(wanted: str) -> bool:
            (row,) = await found.rows("voice")
            return row.state == wanted

        await wait_for(lambda: state("stopped"), LIMIT, 0.05)
        second = await pid("w")
        assert second != first
        assert (await found.mooring.call("w", "voice_crash", {}))["isError"]
        await wait_for(lambda: state("backoff"), LIMIT, 0.02)

        async def again() -> str:
            answer = await found.mooring.call("v", "voice_pid", {})
            return "" if answer.get("isError") else answer["content"][0]["text"]

        assert await wait_for(again, LIMIT, 0.1) not in (first, second)


async def test_r29_system_packages_that_are_not_there_are_named(site: Site, tmp_path: Path) -> None:
    """R29: declared packages are checked with a clear message."""
    if not os.path.exists("/usr/bin/dpkg-query"):
        pytest.skip("dpkg-query is not here: this system is not Debian")
    site.install(SPEC.rstrip()[:-1] + ", packages=['dpkg', 'no-such-package-here'])\n")
    async with daemon(tmp_path, {}, **HOST) as found:
        answer = await found.mooring.call("w", "voice_anything", {})
        assert "apt-get install no-such-package-here" in answer["content"][0]["text"]
