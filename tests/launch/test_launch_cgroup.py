"""Control groups: what is written where, and nothing left. The folder stands for the kernel's, which the tests of
the sandbox meet."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mooring.launch.cgroup import Limits, limited, size


@pytest.mark.parametrize(
    ("text", "bytes_"), [("0", 0), ("4096", 4096), ("8b", 8), ("1K", 1024), ("512m", 512 << 20), ("2g", 2 << 30)]
)
def test_sizes_are_bytes(text: str, bytes_: int) -> None:
    assert size(text) == bytes_


def prepared(root: Path, monkeypatch, *files: str) -> None:
    """A new group has these files at once, as the kernel's have."""
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        for file in files:
            Path(path, file).touch()

    def rmdir(path: str) -> None:
        for file in Path(path).iterdir():
            file.unlink()
        remove(path)

    monkeypatch.setattr("mooring.launch.cgroup.os.mkdir", mkdir)
    monkeypatch.setattr("mooring.launch.cgroup.os.rmdir", rmdir)


def test_version_2_is_one_group(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "cgroup.controllers").touch()
    prepared(tmp_path, monkeypatch, "memory.max", "memory.swap.max", "pids.max")
    with limited(Limits("64m", 32), str(tmp_path)) as (entry,):
        group = Path(entry).parent
        assert group.parent == tmp_path
        assert (group / "memory.max").read_text() == str(64 << 20)
        assert (group / "memory.swap.max").read_text() == "0"
        assert (group / "pids.max").read_text() == "32"
        assert Path(entry).name == "cgroup.procs"
    assert not group.exists()


def test_version_1_is_a_group_a_limit(tmp_path: Path, monkeypatch) -> None:
    for parent in ("memory", "pids"):
        (tmp_path / parent).mkdir()
    prepared(tmp_path, monkeypatch, "memory.limit_in_bytes", "pids.max")  # no memsw: not every kernel counts swap
    with limited(Limits("64m", 32), str(tmp_path)) as (memory, pids):
        assert Path(memory).with_name("memory.limit_in_bytes").read_text() == str(64 << 20)
        assert Path(pids).with_name("pids.max").read_text() == "32"
    with limited(Limits(pids=1), str(tmp_path)) as entries:
        assert [Path(entry).parts[-3] for entry in entries] == ["pids"]
    assert [*tmp_path.glob("*/*")] == []


def test_a_controller_that_is_missing_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "cgroup.controllers").touch()
    prepared(tmp_path, monkeypatch, "pids.max")
    with pytest.raises(OSError, match=r"memory\.max"), limited(Limits("64m", 32), str(tmp_path)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["cgroup.controllers"]


def test_no_control_groups_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="memory"), limited(Limits("64m"), str(tmp_path)):
        pass


def test_what_a_daemon_that_is_gone_left_behind_is_removed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "cgroup.controllers").touch()
    for name in ("mooring-999999999-ab", f"mooring-{os.getpid()}-ab", "mooring-1-ab", "mooring-x", "other"):
        (tmp_path / name).mkdir()
    prepared(tmp_path, monkeypatch, "pids.max")
    with limited(Limits(pids=1), str(tmp_path)):
        pass
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"cgroup.controllers", f"mooring-{os.getpid()}-ab", "mooring-1-ab", "mooring-x", "other"}
