"""Every entry of the starter list that needs no account is added from its package, and offers tools that the list
names. Two of them download a browser when they are installed, which fails where that is out of reach.

Fetches many packages, so it runs only when it is asked to: MOORING_STARTER=1, or words of ids such as
MOORING_STARTER=time,git. Run it when ``starter.toml`` changes, and now and then, since packages change too."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from mooring.catalog import own_toml
from mooring.catalog.entry import Entry
from mooring.catalog.settings import declared
from mooring.testing.daemon import launched

CHOSEN = os.environ.get("MOORING_STARTER", "")
pytestmark = [
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not CHOSEN, reason="fetches many packages; to run it: MOORING_STARTER=1"),
]
ENGINES = ("podman", "docker")
PATHS = ("list", "filepath")
PATIENT = '[gateway]\nlisten = ["127.0.0.1:0"]\n'
NOWHERE = "http://127.0.0.1:9"
"""Where a server is told to find what it works with; listing tools must not need it."""
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{ name: c, cluster: { server: "http://127.0.0.1:9" } }]
contexts: [{ name: c, context: { cluster: c, user: u } }]
users: [{ name: u, user: {} }]
current-context: c
"""


def _entries() -> Iterator[Entry]:
    """Those with a package that asks for no secret."""
    tables = tomllib.loads(files("mooring.catalog").joinpath("starter.toml").read_text("utf-8"))
    for id, table in tables.items():
        entry = own_toml.parse(id, table, "starter")
        packages = [package for package in entry.packages if package.registry_type in ("npm", "pypi")]
        asked = [value for package in packages for value in declared(entry, package).values()]
        if packages and not any(value.is_secret and value.is_required for value in asked):
            yield entry


@pytest.fixture
def without_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of this machine but for container engines, so that packages are what is launched."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in (str(Path(sys.executable).parent), *os.environ.get("PATH", "").split(os.pathsep)):
        for program in Path(folder).glob("*") if folder else ():
            if program.name not in ENGINES and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))


@pytest.mark.parametrize("entry", list(_entries()), ids=lambda entry: entry.id)
async def test_an_entry_starts_and_offers_the_tools_that_it_names(
    entry: Entry, tmp_path: Path, without_engines: None
) -> None:
    """R33: by its package, as a person adds it."""
    if CHOSEN != "1" and not any(word in entry.id for word in CHOSEN.split(",")):
        pytest.skip("not among those that MOORING_STARTER names")
    package = next(package for package in entry.packages if package.registry_type in ("npm", "pypi"))
    program = "npx" if package.registry_type == "npm" else "uvx"
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "kube").write_text(KUBECONFIG)
    settings = {
        name: str(tmp_path / "kube") if name == "config_path" else str(tmp_path) if value.format in PATHS else NOWHERE
        for name, value in declared(entry, package).items()
        if value.is_required
    }
    home = tmp_path / "home"
    home.mkdir()
    (home / "mooring.toml").write_text(PATIENT)
    async with launched(home) as running:
        mount = await running.mooring.add("default", entry.id, settings=settings)
        named = {tool.name for tool in entry.tools}
        assert named & set(mount.tools)
        if package is entry.packages[0]:  # others may lag behind, or offer what depends on where they run
            assert named <= set(mount.tools)
