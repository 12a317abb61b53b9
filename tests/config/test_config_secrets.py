"""Secret values: found when needed, kept by nobody, told to nobody else."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from memory_keyring import MemoryKeyring

from mooring.config import secrets as module
from mooring.config.home import Home
from mooring.config.plan_servers import Container, Process, Remote, SecretRef, credentials, references
from mooring.config.secrets import Secrets
from mooring.config.store import SecretStore, usable_keyring
from mooring.errors import ConfigError

VALUE = "s3cret-välue"


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyring:
    backend = MemoryKeyring()
    monkeypatch.setattr(module, "usable_keyring", lambda: backend)
    return backend


@pytest.fixture
def without_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_keyring", lambda: None)


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(Home.locate({"MOORING_HOME": str(tmp_path)}), {"TOKEN": VALUE, "EMPTY": ""})


def private(file: Path, content: str, mode: int = 0o600) -> SecretRef:
    file.write_text(content)
    file.chmod(mode)
    return SecretRef("file", str(file))


def printing(program: str) -> SecretRef:
    return SecretRef("command", (sys.executable, "-c", program))


def test_each_kind_of_reference_finds_its_value(secrets: Secrets, keyring: MemoryKeyring, tmp_path: Path) -> None:
    """R22 A22."""
    secrets.store_set("mine", "a")
    keyring.kept["theirs", "me/too"] = "b"
    secrets.store_set("kept", VALUE)
    assert secrets.fetch(SecretRef("env", "TOKEN")) == VALUE
    assert secrets.fetch(private(tmp_path / "f", VALUE + "\n")) == VALUE
    assert secrets.fetch(private(tmp_path / "f", "two\nlines\r\n")) == "two\nlines"
    assert secrets.fetch(SecretRef("keyring", "mine")) == "a"
    assert secrets.fetch(SecretRef("keyring", "theirs/me/too")) == "b"
    assert secrets.fetch(printing("print('from a command')")) == "from a command"
    assert secrets.fetch(SecretRef("store", "kept")) == VALUE


@pytest.mark.parametrize(
    "ref",
    [
        SecretRef("env", "UNSET"),
        SecretRef("env", "EMPTY"),
        SecretRef("file", "/nowhere/at/all"),
        SecretRef("keyring", "none"),
        SecretRef("command", (sys.executable, "-c", "")),
        SecretRef("store", "none"),
    ],
    ids=str,
)
def test_a_missing_secret_is_an_error_that_names_the_reference(
    secrets: Secrets, keyring: MemoryKeyring, ref: SecretRef
) -> None:
    """A22: an error, not an empty string."""
    with pytest.raises(ConfigError, match="is missing") as error:
        secrets.fetch(ref)
    assert str(ref) in str(error.value)
    assert secrets.fingerprint(ref) is None


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (SecretRef("command", ("/nowhere/program",)), "there is no program /nowhere/program"),
        (SecretRef("command", ("/",)), "cannot be run"),
        (printing("import sys; print('s3cret'); sys.exit(3)"), "exit code 3"),
        (printing("import sys; sys.stdout.buffer.write(b'\\xff')"), "not text"),
        (SecretRef("magic", "x"), "no kind of secret"),
    ],
    ids=["absent", "folder", "failing", "bytes", "unknown"],
)
def test_a_secret_that_cannot_be_had_says_why_and_shows_nothing(secrets: Secrets, ref: SecretRef, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        secrets.fingerprint(ref)
    assert str(error.value).count("s3cret") == str(ref).count("s3cret")


def test_a_command_that_takes_too_long_is_ended(secrets: Secrets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMMAND_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"longer than 0\.2 s"):
        secrets.fetch(printing("import time; time.sleep(60)"))


def test_a_command_gets_no_shell(secrets: Secrets, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    assert secrets.fetch(SecretRef("command", ("echo", f"$(touch {trap}); touch {trap}"))).startswith("$(touch")
    assert not trap.exists()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_may_read_is_refused(secrets: Secrets, tmp_path: Path, mode: int) -> None:
    """A22: file with mode check."""
    ref = private(tmp_path / "f", VALUE, mode)
    with pytest.raises(ConfigError, match="chmod 600") as error:
        secrets.fetch(ref)
    assert VALUE not in str(error.value)


def test_a_mark_that_an_editor_put_in_front_is_no_part_of_the_value(secrets: Secrets, tmp_path: Path) -> None:
    assert secrets.fetch(private(tmp_path / "f", f"\ufeff{VALUE}\r\n")) == VALUE


def test_a_file_that_goes_while_it_is_read_is_missing(
    secrets: Secrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while somebody puts another in its place."""
    monkeypatch.setattr(os.path, "isfile", lambda _: True)
    with pytest.raises(ConfigError, match=str(tmp_path / "gone")):
        secrets.fetch(SecretRef("file", str(tmp_path / "gone")))


def test_a_file_that_is_no_text_is_refused(secrets: Secrets, tmp_path: Path) -> None:
    ref = private(tmp_path / "f", "")
    (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UnicodeDecodeError"):
        secrets.fetch(ref)


def test_a_machine_without_keyring_says_so(secrets: Secrets, without_keyring: None) -> None:
    with pytest.raises(ConfigError, match="no usable keyring"):
        secrets.fetch(SecretRef("keyring", "x"))


def test_a_keyring_that_fails_is_an_error_of_ours(secrets: Secrets, keyring: MemoryKeyring) -> None:
    def fail(*_: str) -> str:
        raise RuntimeError(VALUE)

    keyring.get_password = fail  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=r"the keyring failed \(RuntimeError\)") as error:
        secrets.fetch(SecretRef("keyring", "x"))
    assert VALUE not in str(error.value)


def test_all_secrets_of_a_launch_are_fetched_and_missing_optional_ones_left_out(secrets: Secrets) -> None:
    token, unset = SecretRef("env", "TOKEN"), SecretRef("env", "UNSET")
    optional = SecretRef("env", "UNSET", optional=True)
    also = SecretRef("env", "TOKEN", optional=True)
    launch = Container("i", secrets={"A": token, "B": optional, "D": also}, credentials={"C": token})
    assert secrets.fetch_all(launch) == {"A": VALUE, "C": VALUE, "D": VALUE}
    assert secrets.fetch_all(Remote("u", auth=token)) == {"authorization": VALUE}
    with pytest.raises(ConfigError, match="UNSET"):
        secrets.fetch_all(Process(("x",), secrets={"A": unset}))


def test_credentials_are_told_apart_from_what_a_launcher_is_given() -> None:
    """A1 A6"""
    token = SecretRef("env", "TOKEN")
    for launch in (
        Container("i", secrets={"A": token}, credentials={"C": token}),
        Process(("x",), secrets={"A": token}, credentials={"C": token}),
    ):
        assert references(launch).keys() == {"A", "C"}
        assert credentials(launch) == {"C": token}
    assert credentials(Process(("x",), credentials={})) == {}
    assert credentials(Process(("x",))) is None
    assert credentials(Remote("u", auth=token)) is None


def test_a_value_that_is_no_text_has_a_fingerprint_too(tmp_path: Path) -> None:
    """A21: bytes of the environment that are not UTF-8."""
    raw = b"\xff\xfe".decode("utf-8", "surrogateescape")
    odd = Secrets(Home.locate({"MOORING_HOME": str(tmp_path)}), {"A": raw, "B": raw + "x"})
    assert odd.fingerprint(SecretRef("env", "A")) != odd.fingerprint(SecretRef("env", "B"))


def test_a_fingerprint_is_an_hmac_under_a_key_made_once(secrets: Secrets, tmp_path: Path) -> None:
    """R8 A21."""
    key = secrets.installation_key()
    assert len(key) == 32
    assert secrets.installation_key() == key
    assert (tmp_path / "state" / "installation.key").stat().st_mode & 0o777 == 0o600
    expected = hmac.new(key, VALUE.encode(), hashlib.sha256).hexdigest()
    assert secrets.fingerprint(SecretRef("env", "TOKEN")) == expected


def test_many_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    home = Home.locate({"MOORING_HOME": str(tmp_path)})
    keys: list[bytes] = []
    threads = [threading.Thread(target=lambda: keys.append(Secrets(home).installation_key())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert os.listdir(home.state) == ["installation.key"]


def test_an_installation_key_that_others_may_read_is_refused(secrets: Secrets, tmp_path: Path) -> None:
    secrets.installation_key()
    (tmp_path / "state" / "installation.key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        secrets.installation_key()


def test_every_value_is_told_to_the_redactor_before_anybody_gets_it(tmp_path: Path) -> None:
    seen: list[str] = []
    secrets = Secrets(Home.locate({"MOORING_HOME": str(tmp_path)}), {"TOKEN": VALUE}, seen.append)
    secrets.fingerprint(SecretRef("env", "TOKEN"))
    assert seen == [VALUE]


def test_the_store_without_keyring_is_a_file_for_its_owner(
    secrets: Secrets, without_keyring: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R22 A22: 0600, written as a whole, and values in no repr or log."""
    caplog.set_level(logging.DEBUG)
    secrets.store_set("b", VALUE)
    secrets.store_set("a", "x")
    file = tmp_path / "state" / "secrets.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == {"a": "x", "b": VALUE}
    assert secrets.store_names() == ["a", "b"]
    assert secrets.fetch(SecretRef("store", "b")) == VALUE
    assert secrets.store_remove("a")
    assert not secrets.store_remove("a")
    assert secrets.store_names() == ["b"]
    assert os.listdir(tmp_path / "state") == ["secrets.json"]
    assert VALUE not in repr(secrets) + caplog.text


def test_the_store_with_keyring_keeps_only_names_in_the_file(
    secrets: Secrets, keyring: MemoryKeyring, tmp_path: Path
) -> None:
    """A22."""
    secrets.store_set("a", VALUE)
    assert keyring.kept == {("mooring", f"{tmp_path}/state/secrets.json#a"): VALUE}
    assert json.loads((tmp_path / "state" / "secrets.json").read_text()) == {"a": None}
    assert secrets.fetch(SecretRef("store", "a")) == VALUE
    assert secrets.store_remove("a")
    assert keyring.kept == {}


def test_two_installations_of_one_user_keep_different_values_under_one_name(tmp_path: Path) -> None:
    keyring = MemoryKeyring()
    mine, other = (SecretStore(str(tmp_path / name / "secrets.json"), lambda: keyring) for name in ("mine", "other"))
    mine.set("a", "my value")
    other.set("a", "another")
    other.remove("a")
    assert mine.get("a") == "my value"
    assert other.get("a") is None


def test_the_store_survives_a_keyring_that_went_away_or_forgot(tmp_path: Path) -> None:
    keyring = MemoryKeyring()
    file = tmp_path / "secrets.json"
    SecretStore(file, lambda: keyring).set("a", VALUE)
    gone = SecretStore(file, lambda: None)
    assert gone.get("a") is None
    keyring.kept.clear()
    assert SecretStore(file, lambda: keyring).remove("a")
    assert gone.names() == []


def test_a_store_whose_keyring_fails_says_so_and_shows_nothing(secrets: Secrets, keyring: MemoryKeyring) -> None:
    """Such as one that is locked."""
    secrets.store_set("a", VALUE)

    def fail(*_: str) -> None:
        raise RuntimeError(VALUE)

    keyring.set_password = fail  # type: ignore[method-assign]
    keyring.get_password = fail  # type: ignore[method-assign, assignment]
    for attempt in (
        lambda: secrets.fetch(SecretRef("store", "a")),
        lambda: secrets.store_set("b", VALUE),
        lambda: secrets.store_remove("a"),
    ):
        with pytest.raises(ConfigError, match=r"the keyring failed \(RuntimeError\)") as error:
            attempt()
        assert VALUE not in str(error.value)
    assert secrets.store_names() == ["a"]


def test_of_two_that_are_set_at_once_none_is_lost(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def slow() -> None:
        """Looking for a keyring, which is after the file was read; whoever may, waits for the other to have read it."""
        with suppress(threading.BrokenBarrierError):
            both.wait(0.3)

    store = SecretStore(tmp_path / "state" / "secrets.json", slow)
    setting = [threading.Thread(target=store.set, args=(name, "x")) for name in ("a", "b")]
    for thread in setting:
        thread.start()
    for thread in setting:
        thread.join()
    assert store.names() == ["a", "b"]


@pytest.mark.parametrize(("name", "value"), [("a/b", "x"), ("", "x"), ("a", "")])
def test_what_cannot_be_stored_is_refused(secrets: Secrets, without_keyring: None, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="cannot be"):
        secrets.store_set(name, value)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 1}'])
def test_a_damaged_store_is_an_error_that_shows_nothing(
    secrets: Secrets, without_keyring: None, tmp_path: Path, content: str
) -> None:
    (tmp_path / "state").mkdir()
    private(tmp_path / "state" / "secrets.json", content)
    with pytest.raises(ConfigError, match="damaged"):
        secrets.store_names()


def test_a_store_that_others_may_read_is_refused(secrets: Secrets, without_keyring: None, tmp_path: Path) -> None:
    secrets.store_set("a", "x")
    (tmp_path / "state" / "secrets.json").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        secrets.fetch(SecretRef("store", "a"))


def test_only_a_keyring_that_keeps_things_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backends import chainer, fail, null

    class Empty(chainer.ChainerBackend):
        backends: Any = ()

    backends = {"fail": fail.Keyring(), "null": null.Keyring(), "empty": Empty(), "real": MemoryKeyring()}
    usable = set()
    for name, backend in backends.items():
        monkeypatch.setattr(keyring, "get_keyring", lambda backend=backend: backend)
        if usable_keyring() is backend:
            usable.add(name)
    assert usable == {"real"}
    monkeypatch.setattr(keyring, "get_keyring", lambda: 1 / 0)
    assert usable_keyring() is None


def test_keyring_is_loaded_only_where_a_secret_needs_it(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys\nfrom mooring.config.home import Home\nfrom mooring.config.secrets import Secrets\n"
        "from mooring.config.plan import SecretRef\n"
        "s = Secrets(Home.locate())\ns.fingerprint(SecretRef('env', 'HOME'))\ns.fingerprint(SecretRef('store', 'x'))\n"
        "assert not {'keyring', 'tomlkit', 'dataclasses', 'ssl', 'asyncio'} & set(sys.modules), sys.modules.keys()\n"
    )
    env = {"MOORING_HOME": str(tmp_path), "HOME": "/h", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
