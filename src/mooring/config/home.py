"""Where Mooring keeps its files. Called by everything that opens one of them; creates folders only in ``prepare``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec


class Home(msgspec.Struct, frozen=True):
    """The three folders of one installation."""

    config: Path
    """Folder of ``mooring.toml`` and ``conf.d``."""
    state: Path
    """What survives a restart."""
    run: Path
    """What lives as long as the daemon."""

    @classmethod
    def locate(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """The home that ``environ`` describes: ``$MOORING_HOME``, else the XDG folders."""
        if own := environ.get("MOORING_HOME"):
            root = Path(own).expanduser().absolute()
            return cls(root, root / "state", root / "run")
        state = _xdg(environ, "XDG_STATE_HOME", ".local/state")
        runtime = environ.get("XDG_RUNTIME_DIR")
        run = Path(runtime) / "mooring" if runtime else state / "run"
        return cls(_xdg(environ, "XDG_CONFIG_HOME", ".config"), state, run)

    @property
    def config_file(self) -> Path:
        """The main configuration file."""
        return self.config / "mooring.toml"

    @property
    def socket(self) -> Path:
        """The control socket."""
        return self.run / "control.sock"

    @property
    def pid_file(self) -> Path:
        """Holds the pid of the running daemon."""
        return self.run / "daemon.pid"

    @property
    def store_file(self) -> Path:
        """The SQLite store."""
        return self.state / "mooring.db"

    @property
    def secret_file(self) -> Path:
        """The secret store: names, and values where there is no keyring."""
        return self.state / "secrets.json"

    @property
    def installation_key_file(self) -> Path:
        """The key of this installation, for fingerprints of secrets."""
        return self.state / "installation.key"

    def prepare(self) -> None:
        """Create the folders, for their owner only; what is there already keeps its mode, except ``run``."""
        for folder in (self.config, self.state, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.run.chmod(0o700)


def _xdg(environ: Mapping[str, str], variable: str, fallback: str) -> Path:
    base = environ.get(variable)
    if base and os.path.isabs(base):
        return Path(base) / "mooring"
    return Path(environ.get("HOME") or Path.home()) / fallback / "mooring"
