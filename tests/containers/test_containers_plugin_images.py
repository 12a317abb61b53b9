"""The image of a plugin's server: had by default, built once, and told, with what to do, when it cannot be had."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from container_kit import LIMIT, Kept, answer, called
from mirror import forget, known, mirrored
from python_image import CONFIG, layer
from registry import Registry, registry
from voice import BUILT, INSIDE, installed, listed

from mooring.plugins.image import DEFAULT
from mooring.testing import wait_for
from mooring.testing.daemon import daemon, server
from mooring.testing.plugins import Site

pytestmark = [pytest.mark.network, pytest.mark.timeout(600)]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
BASE = DEFAULT.format(VERSION)


@pytest.fixture(scope="module")
def hub() -> Iterator[Registry]:
    """Stands in for docker.io."""
    with registry(layer(), CONFIG) as hub:
        yield hub


@pytest.fixture
async def mirror(engine: str, hub: Registry) -> Any:
    """The hub, well behaved, as the engine's mirror of docker.io; the engine has nothing of it yet."""
    hub.has_nothing = hub.breaks_off = False
    with mirrored(engine, hub.address) as why:
        if why:
            pytest.skip(why)
        forget(engine, BASE)
        await known(engine, hub.address)
        yield hub
        hub.open.set()
        forget(engine, BASE)


async def test_r29_without_any_image_named_it_runs_in_pythons_own_which_is_pulled(
    engine: str, kept: Kept, mirror: Registry, site: Site, tmp_path: Path
) -> None:
    """R29: what is declared is had, and ``mcp`` besides; who asks meanwhile is told what goes on; it is built once,
    however many ask."""
    mirror.open.clear()
    installed(site, "import cowsay; extra = cowsay.__version__", requirements=["cowsay==6.1"])
    workspaces = {
        "w": {"mcp_servers": ["voice"]},
        "v": {"mcp_servers": ["voice"], "mcp": {"voice": {"loud": True}}},
    }
    home = tmp_path / "home"
    async with kept.daemon(home, {}, workspaces) as running:

        async def pulling() -> bool:
            said = await running.mooring.call("w", "voice_transcribe_voice", {"path": "a.wav"})
            return "(step: pull)" in said["content"][0]["text"]

        await wait_for(pulling, LIMIT, 0.02)
        mirror.open.set()
        await listed(running)
        heard, other = await asyncio.gather(
            called(running, "voice_transcribe_voice", path="a.wav"),
            called(running, "voice_transcribe_voice", "v", path="b.wav"),
        )
        assert (heard["heard"], heard["extra"]) == ("a.wav", "6.1")
        assert heard["code"] == f"{INSIDE}/mooring_plugin_voice/mcp.py"
        assert other["heard"] == "b.wav"
        manifests = [path for path in mirror.asked if path == f"/v2/library/python/manifests/{VERSION}-slim"]
        assert manifests
        logged = await running.mooring.logs("voice", 2000)
        assert sum("Successfully installed" in line for line in logged) == 1
        assert not any("\x1b" in line for line in logged)
    asked = len(mirror.asked)
    async with kept.again(home) as running:
        assert (await called(running, "voice_transcribe_voice", path="c.wav"))["heard"] == "c.wav"
        assert not any("Successfully installed" in line for line in await running.mooring.logs("voice", 2000))
    assert mirror.asked[asked:] == []


async def test_r29_an_image_that_cannot_be_had_is_named_and_nothing_runs_unconfined_instead(
    kept: Kept, mirror: Registry, site: Site, tmp_path: Path
) -> None:
    """R12 R29: the image, the cause, and what to set; the others run."""
    mirror.has_nothing = True
    installed(site)
    async with kept.daemon(tmp_path / "home", {"echo": server()}) as running:
        said = (await answer(running, "voice_transcribe_voice", path="a.wav"))["content"][0]["text"]
        assert f"The image {BASE} could not be pulled: " in said
        assert '[plugins] run = "host"' in said
        assert "[plugins] image" in said
        (row,) = await running.rows("voice")
        assert (row.pid, row.container) == (None, None)
        assert await called(running, "echo_echo", text="hi") == {"text": "hi"}


async def test_r29_a_requirement_that_cannot_be_had_is_named(
    kept: Kept, mirror: Registry, site: Site, tmp_path: Path
) -> None:
    """R29: what the installer said is told, not only that it failed."""
    installed(site, requirements=["no-such-package-anywhere-at-all==9"])
    async with kept.daemon(tmp_path / "home", {}) as running:

        async def failed() -> str:
            (row,) = await running.rows("voice")
            return row.reason if row.state == "backoff" else ""

        said = await wait_for(failed, BUILT, 0.1)
        assert "could not be built from" in said
        assert "No matching distribution found for no-such-package-anywhere-at-all==9" in said
        assert "\x1b" not in said


async def test_a_name_without_a_registry_means_for_plugins_what_it_means_for_servers(
    engine: str, kept: Kept, mirror: Registry, site: Site, tmp_path: Path
) -> None:
    """R33: Podman, too, finds it where Docker looks."""
    image = "mooring-tests/python:1"
    installed(site, requirements=["mcp>=2.3"])
    try:
        async with kept.daemon(tmp_path / "home", {}, tables={"plugins": {"image": image}}) as running:
            await listed(running)
            assert (await called(running, "voice_transcribe_voice", path="a.wav"))["heard"] == "a.wav"
            assert "/v2/mooring-tests/python/manifests/1" in mirror.asked
    finally:
        forget(engine, f"docker.io/{image}")


async def test_an_engine_that_does_not_answer_is_no_reason_to_run_unconfined(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R29 R39: what to set is told; the others run."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed (as root on Debian: tests/containers/provision.sh)")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    installed(site)
    async with daemon(tmp_path, {"echo": server()}, gateway={"engine": "docker"}) as running:
        said = (await running.mooring.call("w", "voice_transcribe_voice", {}))["content"][0]["text"]
        assert "docker does not answer" in said
        assert '[plugins] run = "host"' in said
        assert await called(running, "echo_echo", text="hi") == {"text": "hi"}
