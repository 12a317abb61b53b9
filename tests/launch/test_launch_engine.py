"""What engines say about themselves and their containers, and what is made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mooring.errors import LaunchMissing
from mooring.launch import engine
from mooring.launch.engine import Facts
from mooring.launch.kept import Keeper
from mooring.launch.obstacles import unenforced

ALL = ["cpuset", "cpu", "memory", "pids"]


def podman(version: str = "5.4.0", rootless: bool = False, cgroups: str = "v2", controllers: Any = ALL) -> bytes:
    security = {"rootless": rootless, "selinuxEnabled": False}
    host = {"security": security, "cgroupVersion": cgroups, "cgroupControllers": controllers, "serviceIsRemote": False}
    return json.dumps({"host": host, "version": {"Version": version}}).encode()


@pytest.mark.parametrize(
    ("said", "ignored"),
    [
        (podman(), ()),
        (podman(cgroups="v1"), ()),
        (podman(rootless=True), ()),
        (podman(rootless=True, controllers=["memory", "pids"]), ("cpus",)),
        (podman(rootless=True, cgroups="v1"), ("memory", "pids", "cpus")),
        (podman(controllers=None), ("memory", "pids", "cpus")),
    ],
)
def test_limits_that_podman_would_ignore_are_known(said: bytes, ignored: tuple[str, ...]) -> None:
    """R25: said instead of assumed."""
    found = engine.podman("/usr/bin/podman", said)
    assert found.ignored == ignored
    assert not ignored or ", ".join(ignored) in unenforced(found)


@pytest.mark.parametrize(("version", "updates"), [("4.2.1", False), ("4.3.1", True), ("10.0.0-rc1", True)])
def test_whether_podman_can_change_limits_follows_its_version(version: str, updates: bool) -> None:
    found = engine.podman("/usr/bin/podman", podman(version))
    assert (found.updates, str(found)) == (updates, f"podman {version}")


def test_docker_says_what_it_enforces_and_whether_it_is_here() -> None:
    told = {"ServerVersion": "20.10", "MemoryLimit": True, "PidsLimit": False, "CpuCfsQuota": True}
    said = json.dumps({**told, "Name": os.uname().nodename, "SecurityOptions": ["name=rootless"]}).encode()
    found = engine.docker("docker", said)
    assert isinstance(found, engine.Engine)
    assert (found.ignored, found.local, found.rootless) == (("pids",), True, True)
    assert str(found) == "docker 20.10 (rootless)"
    elsewhere = engine.docker("docker", json.dumps({**told, "Name": "virtual"}).encode())
    assert isinstance(elsewhere, engine.Engine)
    assert not elsewhere.local
    assert engine.docker("docker", b'{"ServerErrors": ["nobody there"]}') == "nobody there"


def test_facts_are_known_once_a_container_runs() -> None:
    ports = {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "40001"}], "9/udp": None}

    def inspected(running: bool, pid: int) -> bytes:
        state = {"Running": running, "Pid": pid, "Status": "x"}
        return json.dumps([{"State": state, "NetworkSettings": {"Ports": ports}}]).encode()

    assert engine.facts(inspected(True, 7)) == Facts(7, {8000: 40001})
    assert engine.facts(inspected(False, 0)) is None
    assert engine.facts(b'[{"State": {"Running": true, "Pid": 1}, "NetworkSettings": {}}]') == Facts(1, {})
    assert engine.facts(b"[]") is None
    assert engine.facts(b"no") is None


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("Error: x: image not known", "x: image not known"),
        (
            "docker: Error response from daemon: No such image: x\n\nRun 'docker run --help' for more\n",
            "No such image: x",
        ),
        ("", "it said nothing"),
    ],
)
def test_the_words_of_an_engine_are_shown_without_their_prefixes(errors: str, said: str) -> None:
    assert engine.words(errors) == said


def script(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


async def test_auto_takes_podman_first_and_says_why_it_took_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R39: the reason names each engine that was passed over; so does the error when none is left."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    info = json.dumps({"ServerVersion": "20.10", "MemoryLimit": True, "PidsLimit": True, "CpuCfsQuota": True})
    async with Keeper() as keeper:
        script(tmp_path, "podman", f"echo '{podman().decode()}'")
        script(tmp_path, "docker", f"echo '{info}'")
        assert (await engine.choose(keeper, "auto")).name == "podman"
        assert (await engine.choose(keeper, "docker")).why == 'engine = "docker"'
        script(tmp_path, "podman", "echo 'Error: cannot set up storage' >&2; exit 125")
        found = await engine.choose(keeper, "auto")
        assert (found.name, found.why) == ("docker", "podman does not answer: cannot set up storage")
        script(tmp_path, "docker", "echo 'not JSON'")
        with pytest.raises(LaunchMissing, match=r"cannot set up storage; docker does not answer: its answer is not"):
            await engine.choose(keeper, "auto")
        with pytest.raises(LaunchMissing, match="To have one, install Podman"):
            await engine.choose(keeper, "podman")


def test_an_answer_that_is_no_json_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        engine.podman("podman", b"{}")
