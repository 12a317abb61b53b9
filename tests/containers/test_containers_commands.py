"""What ``check``, ``ps`` and ``doctor`` say about containers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from container_kit import Kept, Table, called


async def test_check_says_what_a_container_gets(kept: Kept, tmp_path: Path, probe: Table) -> None:
    """R6 R25: network, limits, root and mounts, secrets masked, nothing started."""
    servers = {
        "open": probe(port=8000, read_only=False, limits={"memory": "", "pids": 0, "cpus": 0}),
        "shut": probe(network="none", secrets={"TOKEN": {"env": "PATH"}}),
    }
    home = tmp_path / "home"
    async with kept.daemon(home, servers, {"w": {}, "v": {"mcp_servers": ["*"]}}) as daemon:
        code, out, _ = await daemon.command("check", "--json")
        assert code == 0
        opened, shut = ({**row, "gets": set(row["confined"])} for row in json.loads(out)["variants"])
        assert opened["gets"] >= {
            "network: open",
            "memory: no limit",
            "processes: no limit",
            "processors: no limit",
            "root: writable, gone with the container",
            "port: 8000, published on a free port of 127.0.0.1",
            "mount: /usr:/usr:ro",
        }
        assert shut["gets"] >= {"network: none", "memory: 1g", "processes: 256", "processors: 1"}
        assert shut["env"]["TOKEN"] == "<env PATH>"
        code, out, _ = await daemon.command("check")
        assert "container\tshut" in out
        assert "network: none" in out


async def test_ps_and_doctor_name_the_engine(kept: Kept, tmp_path: Path, echo: Table) -> None:
    """R39: which one runs it, under which name, and why this one."""
    async with kept.daemon(tmp_path / "home", {"one": echo()}) as daemon:
        await called(daemon, "one_echo")
        (name,) = kept.names(daemon.home)
        code, out, _ = await daemon.command("ps", "--json")
        assert (code, json.loads(out)[0]["container"]) == (0, f"{kept.engine}:{name}")
        code, out, _ = await daemon.command("doctor", "--json")
        findings = {finding["check"]: finding for finding in json.loads(out)["findings"]}
        assert findings["engine"]["level"] == "ok"
        assert findings["engine"]["message"].startswith(f"{kept.engine} ")
        assert findings["server one"]["level"] == "ok"


async def test_doctor_says_what_to_install(
    kept: Kept, tmp_path: Path, echo: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R39: and each container server is found to have no engine."""
    async with kept.daemon(tmp_path / "home", {"one": echo()}, {"w": {}, "v": {"mcp_servers": ["*"]}}) as daemon:
        monkeypatch.setenv("PATH", str(tmp_path))
        code, out, _ = await daemon.command("doctor", "--json")
        assert code == 1
        findings = {finding["check"]: finding for finding in json.loads(out)["findings"]}
        assert "is not installed" in findings["engine"]["message"]
        assert findings["server one"]["level"] == "error"
