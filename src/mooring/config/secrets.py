"""The values behind secret references, and the installation key that fingerprints them.

Called at the moment of a start (``fetch_all``), by ``config.resolve`` through ``fingerprint``, and by ``mooring
secret``. Values are returned to the caller and kept nowhere; errors name the reference, never the value.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mooring.config.files import check_private, make_once, read_text
from mooring.config.home import Home
from mooring.config.plan_servers import Launch, SecretRef, references
from mooring.config.store import SERVICE, SecretStore, usable_keyring
from mooring.errors import ConfigError

if TYPE_CHECKING:
    from mooring.config.logins import LoginPlace

COMMAND_SECONDS = 10.0
"""How long a secret's command may take."""


class Secrets:
    """All secrets of one installation. ``environ`` is where ``{ env = ... }`` looks; ``found`` is told every value
    before anybody gets it (the redactor)."""

    def __init__(
        self,
        home: Home,
        environ: Mapping[str, str] = os.environ,
        found: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.resolvers: Mapping[str, Callable[[str], str | None]] = {}
        """What plugins bring, by the name before the colon of ``{ plugin = "NAME:WHERE" }``."""
        self.state = home.state
        """The state folder."""
        self._home = home
        self._environ = environ
        self._found = found

    def __repr__(self) -> str:
        return f"<Secrets of {self._home.state}>"

    def fetch(self, ref: SecretRef) -> str:
        """The value of ``ref``. Raises ConfigError when it is missing or may not be used."""
        value = self._find(ref)
        if value is None:
            raise ConfigError(f"secret {ref.missing()}")
        return value

    def fetch_all(self, launch: Launch) -> dict[str, str]:
        """The values that ``launch`` needs, by name; optional ones that are missing are left out.

        Raises ConfigError for the first that is missing and needed.
        """
        found: dict[str, str] = {}
        for name, ref in references(launch).items():
            if ref.optional:
                value = self._find(ref)
                if value is not None:
                    found[name] = value
            else:
                found[name] = self.fetch(ref)
        return found

    def fingerprint(self, ref: SecretRef) -> str | None:
        """HMAC-SHA256(installation key, value), hex; None when the value is missing.

        Raises ConfigError when it is there and may not be used, such as a file that others can read.
        """
        value = self._find(ref)
        if value is None:
            return None
        import hashlib
        import hmac

        return hmac.new(self.installation_key(), value.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    def installation_key(self) -> bytes:
        """32 random bytes, made once. Two processes that make it at the same time end with the same key."""
        file = self._home.installation_key_file
        if not os.path.exists(file):
            os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
            make_once(file, os.urandom(32))
        check_private(file)
        with open(file, "rb") as handle:
            return handle.read()

    def store_set(self, name: str, value: str) -> None:
        """Keep ``value`` for ``{ store = name }``."""
        self._store().set(name, value)

    def store_names(self) -> list[str]:
        """What the store holds, sorted."""
        return self._store().names()

    def store_remove(self, name: str) -> bool:
        """Forget ``name``; False when there was none."""
        return self._store().remove(name)

    def login(self, variant: str) -> LoginPlace:
        """Where the login of a remote server is kept."""
        from mooring.config.logins import LoginPlace  # most have none

        return LoginPlace(self._home.logins, variant, usable_keyring)

    def _from_plugin(self, ref: SecretRef, where: str) -> str | None:
        name, _, place = where.partition(":")
        resolver = self.resolvers.get(name)
        if resolver is None:
            raise ConfigError(f'secret {ref}: no plugin finds secrets named "{name}:" (see: mooring plugins)')
        try:
            value: Any = resolver(place)
        except Exception as error:
            raise ConfigError(f"secret {ref}: the plugin failed ({type(error).__name__})") from None
        if not isinstance(value, str | None):
            raise ConfigError(f"secret {ref}: the plugin returned something that is not text")
        return value or None

    def _from_keyring(self, ref: SecretRef, name: str) -> str | None:
        keyring: Any = usable_keyring()
        if keyring is None:
            raise ConfigError(f"secret {ref}: this machine has no usable keyring")
        service, slash, user = name.partition("/")
        entry = (service, user) if slash else (SERVICE, self._store().entry(name))
        try:
            return keyring.get_password(*entry)
        except Exception as error:
            raise ConfigError(f"secret {ref}: the keyring failed ({type(error).__name__})") from None

    def _store(self) -> SecretStore:
        return SecretStore(self._home.secret_file, usable_keyring)

    def _find(self, ref: SecretRef) -> str | None:
        value = self._look_up(ref)
        if value is not None:
            self._found(value)
        return value

    def _look_up(self, ref: SecretRef) -> str | None:
        match ref.kind, ref.where:
            case "env", str(name):
                return self._environ.get(name) or None
            case "file", str(name):
                return _from_file(os.path.expanduser(name))
            case "keyring", str(entry):
                return self._from_keyring(ref, entry)
            case "store", str(name):
                return self._store().get(name)
            case "command", tuple(argv):
                return _from_command(ref, argv)
            case "plugin", str(where):
                return self._from_plugin(ref, where)
            case _:
                raise ConfigError(f"there is no kind of secret called {ref.kind!r}")


def _from_file(file: str) -> str | None:
    if not os.path.isfile(file):
        return None
    try:
        check_private(file)
        return read_text(file).removesuffix("\n").removesuffix("\r") or None
    except FileNotFoundError:  # gone just now
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"secret cannot be read: {type(error).__name__}", file=file) from None


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Collect what a command that was killed leaves behind: the daemon is heir to it (``launch.kept``), and nobody else
    would. Bounded."""
    process.wait()
    give_up_at = time.monotonic() + 1.0
    with suppress(ChildProcessError):
        while time.monotonic() < give_up_at:
            os.waitpid(-process.pid, os.WNOHANG)
            time.sleep(0.01)


def _from_command(ref: SecretRef, argv: tuple[str, ...]) -> str | None:
    try:
        # A group of its own: what the command started goes with it, and does not hold its output open.
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=COMMAND_SECONDS)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                _reap(process)
                raise
    except FileNotFoundError:
        raise ConfigError(f"secret {ref}: there is no program {argv[0]}") from None
    except OSError as error:
        raise ConfigError(f"secret {ref}: it cannot be run ({type(error).__name__})") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"secret {ref}: the command took longer than {COMMAND_SECONDS:g} s") from None
    if process.returncode:
        raise ConfigError(f"secret {ref}: the command ended with exit code {process.returncode}")
    try:
        return output.decode().removesuffix("\n").removesuffix("\r") or None
    except UnicodeDecodeError:
        raise ConfigError(f"secret {ref}: the command printed something that is not text") from None
