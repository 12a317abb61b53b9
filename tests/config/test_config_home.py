"""Where the files are."""

from __future__ import annotations

from pathlib import Path

from mooring.config.home import Home


def test_one_variable_decides_everything(tmp_path: Path) -> None:
    home = Home.locate({"MOORING_HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/1"})
    assert home == Home(tmp_path, tmp_path / "state", tmp_path / "run")
    assert home.config_file == tmp_path / "mooring.toml"
    assert home.socket == tmp_path / "run" / "control.sock"
    assert home.pid_file == tmp_path / "run" / "daemon.pid"
    assert home.store_file == tmp_path / "state" / "mooring.db"
    assert home.secret_file.parent == home.installation_key_file.parent == tmp_path / "state"


def test_without_it_the_xdg_folders_are_used() -> None:
    home = Home.locate({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"})
    assert home == Home(Path("/c/mooring"), Path("/s/mooring"), Path("/r/mooring"))


def test_without_those_the_home_folder_is_used_and_relative_ones_are_ignored() -> None:
    home = Home.locate({"HOME": "/h", "XDG_CONFIG_HOME": "relative"})
    assert home == Home(
        Path("/h/.config/mooring"), Path("/h/.local/state/mooring"), Path("/h/.local/state/mooring/run")
    )


def test_folders_are_made_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    home = Home.locate({"MOORING_HOME": str(tmp_path)})
    home.prepare()
    home.prepare()
    assert (home.run.stat().st_mode & 0o777, home.state.stat().st_mode & 0o777) == (0o700, 0o700)
