"""Why nothing is added, changed or removed at run time: what only the registry adds to the tree of ``mooring.errors``.
Pure; no boot needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mooring.errors import ConfigError, Refused

if TYPE_CHECKING:
    from mooring.catalog.entry import Entry
    from mooring.catalog.settings import Wanted


class UnknownEntry(ConfigError):
    """The catalog has no such entry."""

    kind = "unknown_entry"


class NotLaunchable(ConfigError):
    """Nothing here can start this entry."""

    kind = "not_launchable"


class AlreadyActive(ConfigError):
    """The entry is active in this workspace."""

    kind = "already_active"


class NotActive(ConfigError):
    """Nothing of that name is active in this workspace."""

    kind = "not_active"


class PrefixTaken(ConfigError):
    """The prefix, or a name that it would make, belongs to another server."""

    kind = "prefix_taken"


class NeedsApproval(Refused):
    """A person needs to approve this first."""

    kind = "needs_approval"


class MissingInput(ConfigError):
    """Something must be given before the server can start."""

    kind = "missing_input"

    def __init__(self, entry: Entry, wanted: Sequence[Wanted], settings: Mapping[str, Any]) -> None:
        super().__init__(_missing(entry, wanted, settings))
        self.details["missing"] = [one.name for one in wanted]
        self.entry = entry
        self.wanted = tuple(wanted)
        self.settings = dict(settings)


def _missing(entry: Entry, wanted: Sequence[Wanted], settings: Mapping[str, Any]) -> str:
    lines = [f'"{entry.id}" was not added; it needs:']
    for one in wanted:
        about = f": {one.description.rstrip('.')}" if one.description else ""
        example = f" (such as {one.placeholder})" if one.placeholder else ""
        if one.secret:
            do = f"A secret, which the user sets: mooring secret set {one.secret_name}"
        else:
            do = f'Give settings {{"{one.name}": ...}}, or on the command line --set {one.name}=...'
        lines.append(f"- {one.name}{about}{example}. {do}")
    if settings:
        lines.append(f"What was given already has to be given again: settings {msgspec.json.encode(settings).decode()}")
    return "\n".join(lines)
