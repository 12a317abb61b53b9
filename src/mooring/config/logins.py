"""Where logins at remote servers are kept: in the system keyring where there is a usable one, else in a file that only
its owner may read. One file for each, which names what is in the keyring.

Called by ``config.secrets``. It knows nothing of what it keeps, and shows and logs none of it. Two processes use it at
the same time (the daemon renews tokens, ``mooring auth`` puts in new ones), so a change is made under a lock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from mooring.config.files import check_private, write_atomically
from mooring.errors import ConfigError

SERVICE = "mooring-login"
"""Under which the keyring keeps our entries."""


class _Kept(msgspec.Struct, frozen=True):
    """``value`` is None for what the keyring has."""

    value: str | None = None


class LoginPlace:
    """The place of one login. ``keyring`` finds the backend to use, or None."""

    def __init__(self, folder: str | Path, name: str, keyring: Callable[[], Any | None]) -> None:
        self._file = Path(folder, f"{name}.json")
        self._entry = str(self._file)
        """Several installations of one user share a keyring."""
        self._keyring = keyring

    def read(self) -> bytes | None:
        """What is kept; None when there is nothing. May block. Raises ConfigError."""
        kept = self._kept()
        if kept is None or kept.value is not None:
            return kept and (kept.value or "").encode()
        value = self._ask("read", lambda keyring: keyring.get_password(SERVICE, self._entry))
        return None if value is None else str(value).encode()

    def change(self, to: Callable[[bytes | None], bytes | None]) -> None:
        """Replace what is kept by what ``to`` makes of it; None forgets it. May block. Raises ConfigError."""
        with self._locked():
            before = self.read()
            after = to(before)
            if after is None or after != before:
                self._put(after)

    def put(self, value: bytes | None) -> None:
        """Keep ``value`` instead of what is there, which need not be readable any more; None forgets it. May block.
        Raises ConfigError."""
        with self._locked():
            self._put(value)

    def _put(self, value: bytes | None) -> None:
        if value is None:
            self._forget()
        else:
            self._write(value.decode())

    def _kept(self) -> _Kept | None:
        try:
            check_private(self._file)
            return msgspec.json.decode(self._file.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            raise ConfigError("the login is damaged; log in again", file=str(self._file)) from None

    def _write(self, value: str) -> None:
        kept = _Kept(value)
        if self._keyring() is not None:
            self._ask("written", lambda keyring: keyring.set_password(SERVICE, self._entry, value))
            kept = _Kept()
        write_atomically(self._file, msgspec.json.encode(kept), mode=0o600)

    def _forget(self) -> None:
        if self._keyring() is not None:
            self._ask("removed", self._delete)
        self._file.unlink(missing_ok=True)

    def _delete(self, keyring: Any) -> None:
        if keyring.get_password(SERVICE, self._entry) is not None:
            keyring.delete_password(SERVICE, self._entry)

    def _ask(self, what: str, do: Callable[[Any], Any]) -> Any:
        keyring = self._keyring()
        if keyring is None:
            raise ConfigError("the login is in the system keyring, which is not usable now", file=str(self._file))
        try:
            return do(keyring)
        except Exception as error:
            raise ConfigError(f"the login cannot be {what}: the keyring failed ({type(error).__name__})") from None

    @contextmanager
    def _locked(self) -> Generator[None]:
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._file.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for one small write
            yield
        finally:
            os.close(descriptor)
