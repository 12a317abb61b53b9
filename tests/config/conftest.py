"""Configurations from text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.config.load import load
from mooring.config.plan import Plan
from mooring.config.plan_servers import Launch, SecretRef
from mooring.config.resolve import resolve
from mooring.config.schema import Loaded


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write files below one folder; returns the main file."""

    def write(main: str, **others: str) -> Path:
        file = tmp_path / "mooring.toml"
        file.write_text(main)
        for name, text in others.items():
            other = tmp_path / name.replace("__", "/").replace("_toml", ".toml")
            other.parent.mkdir(exist_ok=True)
            other.write_text(text)
        return file

    return write


@pytest.fixture
def loaded(write: Callable[..., Path]) -> Callable[..., Loaded]:
    """Load a configuration from text."""
    return lambda main, **others: load(write(main, **others))


@pytest.fixture
def planned(loaded: Callable[..., Loaded]) -> Callable[..., Plan]:
    """Resolve a configuration from text; every secret is there unless ``fingerprint`` says otherwise."""

    def planned(
        main: str,
        fingerprint: Callable[[SecretRef], str | None] = lambda ref: f"print of {ref.where}",
        unsupported: Callable[[Launch], str] = lambda _: "",
    ) -> Plan:
        return resolve(loaded(main), fingerprint=fingerprint, unsupported=unsupported)

    return planned
