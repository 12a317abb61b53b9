"""Servers of plugins for an agent in a container of its own: the JSON it is given, and what it makes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plugin_kit import SPEC, with_another

import mooring
from mooring.plugins import container_input, merge
from mooring.testing.plugins import Site

LIMIT = 30.0


def test_r29_an_agent_is_told_what_to_mount_and_what_to_run(site: Site, tmp_path: Path) -> None:
    """R29: mounted read-only, import path set without losing an existing one."""
    source = SPEC.rstrip()[:-1] + ", env={'A': '1', 'PYTHONPATH': '/own'}, host_source=__file__.rpartition('/')[0])\n"
    package = site.install(source)
    given = json.loads(json.dumps(container_input(state=str(tmp_path))))
    path = "/workspace/plugins/voice:/workspace/mooring:/own"
    voice = {"command": "python", "args": ["-m", "voice_plugin.mcp"], "env": {"A": "1", "PYTHONPATH": path}}
    assert given["plugin_mcp_servers"] == {"voice": voice}
    assert given["mounts"] == [
        {"source": str(package), "target": "/workspace/plugins/voice/voice_plugin", "read_only": True},
        {"source": str(Path(mooring.__file__).parent), "target": "/workspace/mooring/mooring", "read_only": True},
    ]
    assert container_input(["other"], str(tmp_path)) == {"plugin_mcp_servers": None, "mounts": []}


@pytest.mark.parametrize(
    "change", ["port=8000", "run='host'", "env={'SIZE': '{size}'}"], ids=["HTTP", "host only", "needs kwargs"]
)
def test_an_agent_is_not_told_of_what_it_cannot_start(site: Site, tmp_path: Path, change: str) -> None:
    site.install(with_another(f"name='other', command='x', {change}"))
    assert list(container_input(state=str(tmp_path))["plugin_mcp_servers"]) == ["voice"]


def test_no_secret_that_a_person_gives_the_server_is_told(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29: the configuration of this machine, where secrets are referred to, is not looked at."""
    site.install(SPEC)
    monkeypatch.setenv("VOICE_TOKEN", "a-very-secret-value")
    monkeypatch.setenv("MOORING_HOME", str(tmp_path))
    table = "[mcp_servers.voice]\nplugin = 'voice'\nsecrets = { TOKEN = { env = 'VOICE_TOKEN' } }\n"
    (tmp_path / "mooring.toml").write_text(table)
    given = container_input()
    assert set(given["plugin_mcp_servers"]["voice"]["env"]) == {"PYTHONPATH"}
    assert "a-very-secret-value" not in json.dumps(given)


def test_r29_without_plugins_there_is_null(site: Site, tmp_path: Path) -> None:
    """R29: uninstall makes the tools disappear."""
    assert json.dumps(container_input(state=str(tmp_path))) == '{"plugin_mcp_servers": null, "mounts": []}'
    there: dict[str, Any] = {}
    merge(there, {"plugin_mcp_servers": None}, {})
    merge(there, {}, {})
    assert there == {}


def test_servers_that_are_there_stay_and_the_containers_import_path_is_kept() -> None:
    there: dict[str, Any] = {"files": {"command": "mine"}}
    given = {"command": "python", "args": ["-m", "x"], "env": {"PYTHONPATH": "/plugins/voice"}}
    merge(there, {"plugin_mcp_servers": {"voice": given, "files": given}}, {"PYTHONPATH": "/of/the/image"})
    assert there == {
        "files": {"command": "mine"},
        "voice": {"command": "python", "args": ["-m", "x"], "env": {"PYTHONPATH": "/plugins/voice:/of/the/image"}},
    }
    assert given["env"] == {"PYTHONPATH": "/plugins/voice"}


def test_what_a_container_needs_of_mooring_is_the_standard_library() -> None:
    source = str(Path(mooring.__file__).parents[1])
    names = "McpPlugin, McpServerSpec, PluginBase, container_input, merge"
    code = f"import sys; sys.path.append(sys.argv[1]); from mooring.plugins import {names}; print(1)"
    argv = (sys.executable, "-I", "-S", "-c", code, source)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
