"""The adapters: imported when an agent of their kind is opened. Each may need a library that not everybody wants."""

from __future__ import annotations

import importlib
from typing import Any

from mooring.errors import LaunchMissing

EXTRAS = {"native": "native", "ag_ui": "ag-ui", "claude_code": "claude", "codex": "codex", "acp": "acp"}
"""Type of agent to the extra of this package that brings what its adapter imports."""


def adapter(kind: str) -> Any:
    """The module for agents of a type. Raises LaunchMissing with the extra to install."""
    try:
        return importlib.import_module(f"mooring.agents.{kind}")
    except ImportError as error:
        raise LaunchMissing(
            f"Agents of type {kind} need a library that is not installed ({error}). "
            f"Install it with: pip install 'mooring[{EXTRAS[kind]}]'"
        ) from None
