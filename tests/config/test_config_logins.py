"""The place of a login: a keyring where there is one, else a file for one pair of eyes."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path
from typing import Any

import pytest
from memory_keyring import MemoryKeyring

from mooring.config.logins import SERVICE, LoginPlace
from mooring.errors import ConfigError


def place(folder: Path, ring: Any = None) -> LoginPlace:
    return LoginPlace(folder / "logins", "far", lambda: ring)


def test_without_a_keyring_a_private_file_holds_it(tmp_path: Path) -> None:
    it = place(tmp_path)
    assert it.read() is None
    it.change(lambda raw: b"one" if raw is None else b"two")
    assert it.read() == b"one"
    file = tmp_path / "logins" / "far.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    it.change(lambda raw: raw)
    it.change(lambda raw: None)
    assert it.read() is None
    assert not file.exists()
    it.change(lambda raw: None)


def test_with_a_keyring_the_file_holds_nothing(tmp_path: Path) -> None:
    """A35"""
    ring = MemoryKeyring()
    it = place(tmp_path, ring)
    it.change(lambda raw: b"t0psecret")
    file = tmp_path / "logins" / "far.json"
    assert b"t0psecret" not in file.read_bytes()
    assert ring.kept == {(SERVICE, str(file)): "t0psecret"}
    assert it.read() == b"t0psecret"
    with pytest.raises(ConfigError, match="keyring, which is not usable"):
        place(tmp_path).read()
    it.change(lambda raw: None)
    assert not ring.kept
    assert it.read() is None


def test_what_the_keyring_lost_is_no_login_and_can_be_forgotten(tmp_path: Path) -> None:
    ring = MemoryKeyring()
    it = place(tmp_path, ring)
    it.change(lambda raw: b"x")
    ring.kept.clear()
    assert it.read() is None
    it.change(lambda raw: None)
    assert not (tmp_path / "logins" / "far.json").exists()


def test_a_keyring_that_fails_is_named_and_what_it_says_is_not(tmp_path: Path) -> None:
    class Locked(MemoryKeyring):
        def set_password(self, service: str, name: str, value: str) -> None:
            raise RuntimeError(f"cannot keep {value}")

    with pytest.raises(ConfigError, match=r"cannot be written: the keyring failed \(RuntimeError\)") as raised:
        place(tmp_path, Locked()).change(lambda raw: b"t0psecret")
    assert "t0psecret" not in str(raised.value)


def test_a_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    it = place(tmp_path)
    it.change(lambda raw: b"x")
    (tmp_path / "logins" / "far.json").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        it.read()


@pytest.mark.parametrize("spoil", ["keyring", "others", "damaged"])
def test_what_cannot_be_read_can_be_replaced_and_forgotten(tmp_path: Path, spoil: str) -> None:
    file = tmp_path / "logins" / "far.json"
    for value in (b"new", None):
        place(tmp_path, MemoryKeyring() if spoil == "keyring" else None).put(b"old")
        if spoil == "others":
            file.chmod(0o644)
        elif spoil == "damaged":
            file.write_bytes(b"{")
        it = place(tmp_path)
        with pytest.raises(ConfigError):
            it.read()
        it.put(value)
        assert it.read() == value
        assert file.exists() == (value is not None)
        assert value is None or stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    it = place(tmp_path)
    it.change(lambda raw: b"x")
    (tmp_path / "logins" / "far.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="log in again"):
        it.read()


def _append(folder: Path, letter: str) -> None:
    it = place(folder)
    for _ in range(50):
        it.change(lambda raw: (raw or b"") + letter.encode())


def test_changes_of_two_processes_are_not_lost(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_append, args=(tmp_path, letter)) for letter in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted((place(tmp_path).read() or b"").decode()) == ["a"] * 50 + ["b"] * 50
