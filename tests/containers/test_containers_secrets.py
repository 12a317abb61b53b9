"""Secrets reach a container and appear nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from container_kit import LIMIT, Kept, Table, agree, answer, called

from mooring.testing import containers, wait_for

VARIABLE = "s3cr3t-variable-7fd1"
FILE = "s3cr3t-file-91ac\nof two lines"
ENVIRON = "import os; found = {k: v for k, v in os.environ.items() if 'TOKEN' in k}"


async def test_secrets_reach_the_container_and_nothing_else(
    kept: Kept, tmp_path: Path, probe: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22: as variable and as file; in no command line, log, ``ps`` or inspection, but where ``check`` says so."""
    monkeypatch.setenv("A_TOKEN", VARIABLE)
    monkeypatch.setenv("B_TOKEN", FILE)
    secrets = {"TOKEN": {"env": "A_TOKEN"}, "FILE_TOKEN": {"env": "B_TOKEN", "as": "file"}}
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": probe(network="none", secrets=secrets)}) as daemon:
        found = (await called(daemon, "one_look", code=ENVIRON))["found"]
        assert found == {"TOKEN": VARIABLE, "FILE_TOKEN_FILE": "/run/secrets/FILE_TOKEN"}
        read = (await called(daemon, "one_look", code="found = open('/run/secrets/FILE_TOKEN').read()"))["found"]
        assert read == FILE
        (name,) = kept.names(home)
        inspection = json.dumps(containers.inspected(kept.engine, name))
        assert (VARIABLE in inspection) == _shows(kept.engine)
        assert "s3cr3t-file" not in inspection
        places = [daemon.output, str(await daemon.mooring.ps()), (await daemon.command("check"))[1], _command_lines()]
        places += [file.read_text("utf-8", "replace") for file in home.rglob("*") if file.is_file()]
        assert not [place for place in places if "s3cr3t" in place]
        await wait_for(lambda: not kept.secrets(home), LIMIT, 0.05)
    assert not list(Path("/dev/shm").glob(f"mooring-{kept.label(home).partition('=')[2]}-*"))


def _shows(engine: str) -> bool:
    """Whether an inspection shows variables: Docker's does, and Podman's before 5.3; ``check`` says so."""
    if engine == "docker":
        return True
    version = containers.command("podman", "version", "--format", "{{.Client.Version}}")
    return tuple(map(int, version.split(".")[:2])) < (5, 3)


def _command_lines() -> str:
    lines: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_text("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(lines)


async def test_a_rotated_secret_is_another_container(
    kept: Kept, tmp_path: Path, probe: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22 A21: the old one goes, the new one knows the new value."""
    value = tmp_path / "token"
    value.write_text("before")
    value.chmod(0o600)
    table = probe(network="none", secrets={"TOKEN": {"file": str(value)}})
    async with kept.daemon(tmp_path / "home", {"one": table}) as daemon:
        assert (await called(daemon, "one_look", code=ENVIRON))["found"]["TOKEN"] == "before"
        before = kept.names(daemon.home)
        value.write_text("after")
        await daemon.mooring.reload()
        assert (await called(daemon, "one_look", code=ENVIRON))["found"]["TOKEN"] == "after"
        await agree(kept, daemon, 1)
        assert kept.names(daemon.home) != before


async def test_what_docker_cannot_take_as_a_variable_is_refused(
    kept: Kept, tmp_path: Path, probe: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22: several lines; Podman takes them."""
    monkeypatch.setenv("A_TOKEN", FILE)
    table = probe(network="none", secrets={"TOKEN": {"env": "A_TOKEN"}})
    async with kept.daemon(tmp_path / "home", {"one": table}) as daemon:
        result = await answer(daemon, "one_look", code=ENVIRON)
        if kept.engine == "podman":
            assert result["structuredContent"]["found"]["TOKEN"] == FILE
        else:
            assert 'as = "file"' in str(result)
            assert "s3cr3t" not in str(result)


async def test_credentials_go_over_stdin_into_a_container(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R22 A6: an SMCP server in a container: no inspection, no variable and no file has them."""
    monkeypatch.setenv("A_TOKEN", VARIABLE)
    script = tmp_path / "ledger.py"
    script.write_text(
        "from mooring.smcp import credentials\n"
        "values = credentials(required={'DB_PASS': 'of the database'})\n"
        "assert values['DB_PASS'].startswith('s3cr3t-variable')\n"
        "from mooring.testing.echo import main\n"
        "main()\n"
    )
    table = containers.python(
        "/ledger.py", volumes=[f"{script}:/ledger.py:ro"], network="none", credentials={"DB_PASS": {"env": "A_TOKEN"}}
    )
    home = tmp_path / "home"
    async with kept.daemon(home, {"one": table}) as daemon:
        assert await called(daemon, "one_echo", n=1) == {"n": 1}
        (name,) = kept.names(home)
        places = [daemon.output, json.dumps(containers.inspected(kept.engine, name)), _command_lines()]
        places += [file.read_text("utf-8", "replace") for file in home.rglob("*") if file.is_file()]
        assert not [place for place in places if VARIABLE in place]
