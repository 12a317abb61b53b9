"""The writable secret store: ``mooring secret set NAME`` and what import moves out of other files.

Values go to the system keyring where there is a usable one, else into a file only its owner may read. The file always
holds the names. Called by ``config.secrets`` only; never logs and never shows a value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from mooring.config.files import check_private, held, write_atomically
from mooring.config.names import plain_fault
from mooring.errors import ConfigError

SERVICE = "mooring"
"""Under which the keyring keeps our entries. The user of an entry is file and name: several installations of one user
share a keyring."""

_IN_KEYRING = None


class SecretStore:
    """Names and values. ``keyring`` finds the backend to use, or None; it is asked only when a value needs it."""

    def __init__(self, file: str, keyring: Callable[[], Any | None]) -> None:
        self._file = file
        self._keyring = keyring

    def entry(self, name: str) -> str:
        """The user under which the keyring keeps ``name``."""
        return f"{self._file}#{name}"

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._read())

    def get(self, name: str) -> str | None:
        """The value, None when there is none. Raises ConfigError when the file may be read by others, and when the
        keyring fails."""
        known = self._read()
        if name not in known:
            return None
        kept = known[name]
        return self._ask(name, _get) if kept is _IN_KEYRING else kept

    def set(self, name: str, value: str) -> None:
        """Keep ``value`` under ``name``, in place of another. Raises ConfigError for a name that cannot be one."""
        if message := plain_fault(name) or ("" if value else "a secret cannot be empty"):
            raise ConfigError(message)
        with self._alone():
            known = self._read()
            known[name] = value
            if self._keyring() is not None:
                self._ask(name, lambda keyring, entry: keyring.set_password(SERVICE, entry, value))
                known[name] = _IN_KEYRING
            self._write(known)

    def remove(self, name: str) -> bool:
        """Forget ``name``; False when it was not there."""
        with self._alone():
            known = self._read()
            if name not in known:
                return False
            if known.pop(name) is _IN_KEYRING and self._ask(name, _get) is not None:
                self._ask(name, lambda keyring, entry: keyring.delete_password(SERVICE, entry))
            self._write(known)
            return True

    def _ask(self, name: str, do: Callable[[Any, str], Any]) -> Any:
        """What the keyring answers; None where there is none."""
        keyring = self._keyring()
        try:
            return None if keyring is None else do(keyring, self.entry(name))
        except Exception as error:
            raise ConfigError(f"the secret {name}: the keyring failed ({type(error).__name__})") from None

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Nobody else changes the file within this block."""
        folder = os.path.dirname(self._file)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with held(folder):
            yield

    def _read(self) -> dict[str, str | None]:
        if not os.path.exists(self._file):
            return {}
        check_private(self._file)
        try:
            return msgspec.json.decode(_content(self._file), type=dict[str, str | None])
        except msgspec.MsgspecError:
            raise ConfigError("the secret store is damaged; set its secrets again", file=self._file) from None

    def _write(self, known: dict[str, str | None]) -> None:
        write_atomically(self._file, msgspec.json.format(msgspec.json.encode(known, order="sorted")), mode=0o600)


def _get(keyring: Any, entry: str) -> Any:
    return keyring.get_password(SERVICE, entry)


def _content(file: str) -> bytes:
    with open(file, "rb") as handle:
        return handle.read()


def usable_keyring() -> Any | None:
    """The backend of the system keyring, or None where there is none that keeps anything."""
    try:
        import keyring  # only where a secret needs it
        from keyring.backends import chainer, fail, null

        backend: Any = keyring.get_keyring()
    except Exception:  # whatever a backend throws up, the file is there
        return None
    empty = isinstance(backend, chainer.ChainerBackend) and not backend.backends
    return None if empty or isinstance(backend, fail.Keyring | null.Keyring) else backend
