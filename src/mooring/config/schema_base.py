"""What the tables of ``config.schema`` are made of. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Scalar = bool | int | float | str
Kwarg = Scalar | tuple[Scalar, ...]
"""A setting that a workspace gives a server."""
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Via = Literal["mooring", "direct"]
Path = tuple[str | int, ...]
"""Where something stands in the configuration: keys and list positions from the top."""


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TOML table that takes exactly the keys named here."""


def dotted(path: Path) -> str:
    """``path`` as people read it: ``workspaces.alice.mcp_servers[2]``."""
    shown = ""
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        else:
            bare = part.replace("-", "").replace("_", "").isalnum() and part.isascii()
            shown += ("." if shown else "") + (part if bare else f'"{part}"')
    return shown
