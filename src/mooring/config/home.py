"""Where Mooring keeps its files. Called by everything that opens one of them; creates folders only in ``prepare``.

Paths are plain strings here and in what boots: ``pathlib`` would take 3 % of the boot.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec


class Home(msgspec.Struct, frozen=True):
    """The three folders of one installation, absolute."""

    config: str
    """Folder of ``mooring.toml`` and ``conf.d``."""
    state: str
    """What survives a restart."""
    run: str
    """What lives as long as the daemon."""

    @classmethod
    def locate(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """The home that ``environ`` describes: ``$MOORING_HOME``, else the XDG folders."""
        if own := environ.get("MOORING_HOME"):
            return cls.below(os.path.abspath(os.path.expanduser(own)))
        state = _xdg(environ, "XDG_STATE_HOME", ".local/state")
        runtime = environ.get("XDG_RUNTIME_DIR")
        run = os.path.join(runtime, "mooring") if runtime else os.path.join(state, "run")
        return cls(_xdg(environ, "XDG_CONFIG_HOME", ".config"), state, run)

    @classmethod
    def below(cls, root: str | os.PathLike[str]) -> Home:
        """All in the one folder ``root``, as ``$MOORING_HOME`` has it."""
        root = os.fspath(root)
        return cls(root, os.path.join(root, "state"), os.path.join(root, "run"))

    @property
    def config_file(self) -> str:
        """The main configuration file."""
        return os.path.join(self.config, "mooring.toml")

    @property
    def socket(self) -> str:
        """The control socket."""
        return os.path.join(self.run, "control.sock")

    @property
    def pid_file(self) -> str:
        """Holds the pid of the running daemon."""
        return os.path.join(self.run, "daemon.pid")

    @property
    def store_file(self) -> str:
        """The SQLite store."""
        return os.path.join(self.state, "mooring.db")

    @property
    def audit_file(self) -> str:
        """The audit; older ones have a number behind."""
        return os.path.join(self.state, "audit.jsonl")

    @property
    def secret_file(self) -> str:
        """The secret store: names, and values where there is no keyring."""
        return os.path.join(self.state, "secrets.json")

    @property
    def logins(self) -> str:
        """Folder of the logins at remote servers, one file for each."""
        return os.path.join(self.state, "logins")

    @property
    def installation_key_file(self) -> str:
        """The key of this installation, for fingerprints of secrets."""
        return os.path.join(self.state, "installation.key")

    def prepare(self) -> None:
        """Create the folders, for their owner only; what is there already keeps its mode, except ``run``. Raises
        StoreError when one cannot be made."""
        for folder in (self.config, self.state, self.run):
            try:
                os.makedirs(folder, mode=0o700, exist_ok=True)
            except OSError as error:
                from mooring.errors import StoreError  # failures only

                raise StoreError(
                    f"The folder {folder} cannot be made: {error.strerror} ({error.filename}). "
                    "Set MOORING_HOME to a folder that you may write."
                ) from error
        os.chmod(self.run, 0o700)


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> str:
    base = environ.get(variable)
    if base and os.path.isabs(base):
        return os.path.join(base, "mooring")
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), fallback, "mooring")
