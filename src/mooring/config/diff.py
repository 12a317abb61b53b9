"""What a reload would change: two plans compared. Pure; called by ``serve.reload`` and ``check``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mooring.config.plan import Gateway, Plan

_RESTART = ("listen", "engine", "max_starting", "max_instances")
"""Keys of ``[gateway]`` that only a new daemon takes up."""


class Changes(msgspec.Struct, frozen=True):
    """Names that came, went, or mean something else now; each tuple in the order of its plan."""

    added: tuple[str, ...] = ()
    """Variant ids."""
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    workspaces_added: tuple[str, ...] = ()
    workspaces_removed: tuple[str, ...] = ()
    workspaces_changed: tuple[str, ...] = ()
    issuers_added: tuple[str, ...] = ()
    issuers_removed: tuple[str, ...] = ()
    issuers_changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    """Key paths, such as ``gateway.listen``."""

    @property
    def empty(self) -> bool:
        """Whether nothing changed at all."""
        return self == Changes()


def diff(old: Plan, new: Plan) -> Changes:
    """What has to happen to get from ``old`` to ``new``."""
    return Changes(
        *_compare(old.variants, new.variants),
        *_compare(old.workspaces, new.workspaces),
        *_compare(*({issuer.name: issuer for issuer in plan.identity} for plan in (old, new))),
        needs_restart=_needs_restart(old.gateway, new.gateway),
    )


def _compare(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    return (
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple(name for name in new if name in old and new[name] != old[name]),
    )


def _needs_restart(old: Gateway, new: Gateway) -> tuple[str, ...]:
    return tuple(f"gateway.{key}" for key in _RESTART if getattr(old, key) != getattr(new, key))
