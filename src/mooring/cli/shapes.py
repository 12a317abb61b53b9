"""Shapes behind ``--json`` of the verbs that work on this machine's files instead of in the daemon. Pure.

Secrets in them are masked or shown as references. The shapes of all other verbs are in ``nouns``,
``nouns_litellm`` and ``nouns_registry``.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mooring.nouns import Era
from mooring.nouns_check import VariantRow


class ServerRow(msgspec.Struct, frozen=True):
    """One line of ``mooring server list``."""

    name: str
    kind: str
    """``command`` | ``image`` | ``url`` | ``plugin``"""
    enabled: bool
    runs: tuple[str, ...]
    """The command, image with arguments, or URL as written."""
    workspaces: tuple[str, ...]
    file: str
    line: int | None = None


class ServerReport(msgspec.Struct, frozen=True):
    """What ``mooring server show`` prints."""

    name: str
    kind: str
    enabled: bool
    file: str
    line: int | None
    definition: dict[str, Any]
    """The table as it is written."""
    variants: tuple[VariantRow, ...]
    """What it becomes in the workspaces that have it."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool under the server's own name for it."""

    name: str
    description: str = ""


class TrialReport(msgspec.Struct, frozen=True):
    """What ``mooring server test`` prints about a server that answered."""

    server: str
    era: Era
    version: str
    """Protocol version of the conversation."""
    seconds: float
    """From start until it was listed."""
    tools: tuple[OfferedTool, ...]
    prompts: int
    resources: int
    problems: tuple[str, ...]


class LoginRow(msgspec.Struct, frozen=True):
    """One line of ``mooring auth status``; also what ``mooring auth login`` prints. Never a token."""

    server: str
    variant: str
    url: str
    state: Literal["logged in", "expired", "insufficient", "logged out"]
    """``expired``: only a new login helps; ``insufficient``: the server wants more scopes than were granted."""
    issuer: str = ""
    """The authorization server."""
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    """Granted."""
    expires_at: float | None = None
    """When the token ends, if the authorization server said so."""
    renewable: bool = False
    """A new token is fetched without a person when this one ends."""


class ImportReport(msgspec.Struct, frozen=True):
    """What ``mooring import`` would do, or did."""

    written: bool
    servers: dict[str, dict[str, Any]]
    """New servers, as tables."""
    secrets: tuple[str, ...]
    """Names under which literal secrets are moved to the secret store."""
    wanted: tuple[str, ...]
    """Secrets that a person has to set: ``mooring secret set NAME``."""
    unchanged: tuple[str, ...]
    """Servers that are there already."""
    problems: tuple[str, ...]
    files: tuple[str, ...]
    """Files that were written."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that ``mooring doctor`` looked at."""

    check: str
    level: Literal["ok", "warning", "error"]
    message: str
    advice: str = ""
    """What to do about it."""


class DoctorReport(msgspec.Struct, frozen=True):
    """What ``mooring doctor`` prints. ``ok`` is False when a finding is an error."""

    ok: bool
    findings: tuple[Finding, ...]


class ExportReport(msgspec.Struct, frozen=True):
    """What ``mooring export`` did, or would do."""

    client: str
    file: str
    changes: bool
    """Whether the file differs from what it should be."""
    written: bool
    diff: str
    """The lines that change; a key is masked."""


class EnvFile(msgspec.Struct, frozen=True):
    """What ``mooring env --file`` prints: never the key itself."""

    file: str
    id: str
    """Of the key that was made; "" with ``--litellm``, which makes none."""
    workspace: str


class PluginRow(msgspec.Struct, frozen=True):
    """One line of ``mooring plugins``."""

    name: str
    version: str
    description: str
    categories: tuple[str, ...]
    distribution: str
    """The package that brings it."""
    distribution_version: str
    servers: tuple[str, ...]
    hooks: tuple[str, ...]
    """Hooks that it implements in the daemon."""
    state: Literal["ok", "skipped", "disabled"]
    reason: str
    """Why it is not used; "" when it is."""
    problems: tuple[str, ...]
    """What of it is not used, and why."""


class NewPlugin(msgspec.Struct, frozen=True):
    """What ``mooring plugins new`` wrote."""

    name: str
    folder: str
    files: tuple[str, ...]
