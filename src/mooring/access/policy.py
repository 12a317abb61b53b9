"""May this principal use this tool? Pure; called by ``relay.view`` for lists and by ``relay.relay`` for every call.

The same function answers for listing and for calling, so that what is hidden is also forbidden. The reason is for the
audit log; a stranger learns nothing from a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from mooring.config.plan import ToolRules
from mooring.nouns import Principal, Scope


class Decision(msgspec.Struct, frozen=True):
    """Allowed or not, and why."""

    allowed: bool
    reason: str


ALLOWED = Decision(True, "granted")


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether any glob covers ``name`` (case-sensitive)."""
    return any(fnmatchcase(name, glob) for glob in globs)


def offered(upstream: str, *rules: ToolRules) -> bool:
    """Whether a tool passes the filters of its server and its mount (globs on its upstream name)."""
    return all(matches(upstream, rule.allow) and not matches(upstream, rule.deny) for rule in rules)


def check(principal: Principal, scope: Scope, advertised: str, variant: str) -> Decision:
    """Whether ``principal`` may list or call what a workspace offers as ``advertised`` from ``variant``."""
    if scope not in principal.scopes:
        return Decision(False, f"the key has no scope {scope!r}")
    if principal.variant is not None and principal.variant != variant:
        return Decision(False, f"the key is restricted to {principal.variant!r}")
    if principal.tools and not matches(advertised, principal.tools):
        return Decision(False, "the key's tool filter does not cover it")
    return ALLOWED
