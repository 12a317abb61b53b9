"""Plugins whose servers run in containers: mounted code, import path, what they require, and their disappearance."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from container_kit import LIMIT, Kept, called
from python_image import CERTIFICATES
from voice import DISTRIBUTION, INSIDE, LENT, OWN, installed, listed, table

from mooring.plugins import container_input
from mooring.testing import containers
from mooring.testing.plugins import Site


async def test_r29_the_voice_example_runs_as_it_is_written(engine: str, kept: Kept, site: Site, tmp_path: Path) -> None:
    """R29: mounted read-only, import path set without losing an existing one; uninstall makes the tools disappear."""
    package = installed(site)
    image, lent = table(engine)
    home = tmp_path / "home"
    async with kept.daemon(home, {"voice": lent}, tables={"plugins": {"image": image}}) as daemon:
        await listed(daemon)
        heard = await called(daemon, "voice_transcribe_voice", path="a.wav")
        assert heard["heard"] == "a.wav"
        assert heard["code"] == f"{INSIDE}/mooring_plugin_voice/mcp.py"
        assert heard["path"] == f"{INSIDE}:/workspace/mooring:{LENT}:{OWN}"
        (name,) = kept.names(home)
        mounts = {mount["Destination"]: mount for mount in containers.inspected(engine, name)["Mounts"]}
        mount = mounts[f"{INSIDE}/mooring_plugin_voice"]
        assert (mount["Source"], mount["RW"]) == (str(package), False)

        given = json.loads(json.dumps(container_input(state=str(home / "state"))))
        assert given["plugin_mcp_servers"]["voice"]["args"] == ["-m", "mooring_plugin_voice.mcp"]
        assert {"source": str(package), "target": f"{INSIDE}/mooring_plugin_voice", "read_only": True} in given[
            "mounts"
        ]

        site.remove(DISTRIBUTION)
        assert "voice" in (await daemon.mooring.reload()).changed
        assert [tool.name for tool in await daemon.mooring.tools("w")] == []
        assert container_input(state=str(home / "state"))["plugin_mcp_servers"] is None


@pytest.mark.parametrize("network", ["open", "none"])
async def test_a_server_that_speaks_http_is_reached_at_its_port(
    engine: str, kept: Kept, site: Site, tmp_path: Path, network: str
) -> None:
    """R29: also where no network is given, inside its own."""
    installed(site, port=8000)
    image, lent = table(engine)
    servers = {"voice": {**lent, "network": network}}
    async with kept.daemon(tmp_path / "home", servers, tables={"plugins": {"image": image}}) as daemon:
        await listed(daemon)
        heard = await called(daemon, "voice_transcribe_voice", path="a.wav")
        assert (heard["heard"], heard["code"]) == ("a.wav", f"{INSIDE}/mooring_plugin_voice/mcp.py")
        (name,) = kept.names(tmp_path / "home")
        published = containers.inspected(engine, name)["NetworkSettings"]["Ports"] or {}
        assert bool(published.get("8000/tcp")) == (network == "open")


BASE = "localhost/mooring-testing-debian:1"


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of a small Debian with Python and pip."""
    program = shutil.which("mmdebstrap")
    if program is None:
        pytest.skip("mmdebstrap is not installed (as root on Debian: apt-get install mmdebstrap)")
    file = tmp_path_factory.mktemp("debian") / "base.tar"
    include = "--include=python3-minimal,python3-pip,ca-certificates"
    trust = (
        f"--customize-hook=copy-in {CERTIFICATES} {Path(CERTIFICATES).parent}"  # as this machine trusts its registry
    )
    argv = (program, "--variant=apt", include, trust, "bookworm", str(file))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip(f"no Debian could be had: {done.stderr[-200:]}")
    return file


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_r29_packages_of_python_and_of_the_system_are_built_into_an_image_once(
    engine: str, kept: Kept, site: Site, tmp_path: Path, debian: Path
) -> None:
    """R29: declared packages are had in the container; what cannot be had is told."""
    with debian.open("rb") as content:
        argv = (engine, "import", "--change", f"ENV PIP_CERT={CERTIFICATES}", "-", BASE)
        subprocess.run(argv, stdin=content, capture_output=True, timeout=LIMIT * 4, check=True)
    extra = (
        "import cowsay, subprocess; "
        "extra = cowsay.__version__ + ' ' + subprocess.run(['/usr/bin/bc'], input='6*7' + chr(10), text=True, "
        "capture_output=True).stdout.strip()"
    )
    installed(site, extra, requirements=["cowsay==6.1", "mcp>=2.3"], packages=["bc"])
    home = tmp_path / "home"
    table = {"plugin": "voice", "timeouts": {"pull": "8m", "start": "2m"}}
    async with kept.daemon(home, {"voice": table}, tables={"plugins": {"image": BASE}}) as daemon:
        await listed(daemon)
        assert (await called(daemon, "voice_transcribe_voice", path="x"))["extra"] == "6.1 42"
        assert any("bc" in line for line in await daemon.mooring.logs("voice", 2000))
        dockerfiles = list((home / "state" / "plugins" / "images").glob("*/Dockerfile"))
        assert len(dockerfiles) == 1
