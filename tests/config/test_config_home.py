"""Where the files are."""

from __future__ import annotations

import os
from pathlib import Path

from mooring.config.home import Home


def test_one_variable_decides_everything(tmp_path: Path) -> None:
    home = Home.locate({"MOORING_HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"})
    assert home == Home.below(tmp_path) == Home(str(tmp_path), f"{tmp_path}/state", f"{tmp_path}/run")
    assert home.config_file == f"{tmp_path}/mooring.toml"
    assert home.socket == f"{tmp_path}/run/control.sock"
    assert home.pid_file == f"{tmp_path}/run/daemon.pid"
    assert home.store_file == f"{tmp_path}/state/mooring.db"
    assert home.secret_file == f"{tmp_path}/state/secrets.json"
    assert home.installation_key_file == f"{tmp_path}/state/installation.key"


def test_without_it_the_xdg_folders_are_used() -> None:
    home = Home.locate({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"})
    assert home == Home("/c/mooring", "/s/mooring", "/r/mooring")


def test_without_those_the_home_folder_is_used_and_relative_ones_are_ignored() -> None:
    home = Home.locate({"HOME": "/h", "XDG_CONFIG_HOME": "relative"})
    assert home == Home("/h/.config/mooring", "/h/.local/state/mooring", "/h/.local/state/mooring/run")


def test_folders_are_made_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    home = Home.locate({"MOORING_HOME": str(tmp_path)})
    home.prepare()
    home.prepare()
    assert (os.stat(home.run).st_mode & 0o777, os.stat(home.state).st_mode & 0o777) == (0o700, 0o700)
