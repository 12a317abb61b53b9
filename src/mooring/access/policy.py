"""May this caller use this? Pure; asked by ``relay.view`` for lists and for every call.

One function, ``decide``, answers for listing and for calling, so that what is hidden is also forbidden. Its reason is
for the audit log; a stranger learns nothing from a refusal. Rules come from the configuration (``config.plan.Policy``),
of the workspace and of the key; all of them must agree.

What a server says of its own tools (``readOnlyHint``, ``destructiveHint``) counts only where it is trusted: a tool of
any other server may write and destroy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec

from mooring.config.plan import Policy, Rule, ToolRules
from mooring.nouns import Principal, Scope


class Hints(msgspec.Struct, frozen=True):
    """What a tool does to its surroundings, as far as it may be believed."""

    read_only: bool = False
    destructive: bool = True


CAUTIOUS = Hints()


class About(msgspec.Struct, frozen=True):
    """What is listed or called: a tool, a prompt, or a resource."""

    kind: Literal["tool", "prompt", "resource"]
    server: str
    variant: str
    advertised: str = ""
    """The name in this workspace; a resource has none."""
    upstream: str = ""
    """The name or URI as the server knows it."""
    hints: Hints = CAUTIOUS
    confirm: bool = False
    """The server's or the mount's ``tools.confirm`` covers it."""
    blocked: str = ""
    """Why nobody may have it now, whatever the rules say."""


Ground = Literal["", "unknown", "unapproved", "key", "rule", "declined"]
"""What a refusal rests on: nothing of that name; a definition that waits for approval; the caller's key; a rule of the
configuration; a person."""


class Decision(msgspec.Struct, frozen=True):
    """Allowed or not, and why; ``confirm``: a person has to agree to each call. ``ground`` is "" when allowed."""

    allowed: bool
    reason: str
    confirm: bool = False
    ground: Ground = ""


ALLOWED = Decision(True, "granted")
CONFIRM = Decision(True, "granted after a person agreed", confirm=True)
DISAGREED = Decision(False, "a person did not agree", ground="declined")


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether any glob covers ``name`` (case-sensitive)."""
    return any(fnmatchcase(name, glob) for glob in globs)


def offered(upstream: str, *rules: ToolRules) -> bool:
    """Whether a tool passes the filters of its server and its mount (globs on its upstream name)."""
    return all(matches(upstream, rule.allow) and not matches(upstream, rule.deny) for rule in rules)


def decide(principal: Principal, scope: Scope, about: About, policies: Iterable[Policy] = ()) -> Decision:
    """Whether ``principal`` may list or call it."""
    if about.blocked:
        return Decision(False, about.blocked, ground="unapproved")
    if refusal := held_back(principal, scope, about.variant, about.kind, about.advertised):
        return Decision(False, refusal, ground="key")
    confirm = about.confirm and not principal.ours
    for policy in policies:
        if (number := _first(policy.deny, about)) is not None:
            return Decision(False, f"deny[{number}] of {policy.name}", ground="rule")
        if policy.allow and _first(policy.allow, about) is None:
            return Decision(False, f"no allow rule of {policy.name} covers it", ground="rule")
        confirm = confirm or (not principal.ours and _first(policy.confirm, about) is not None)
    return CONFIRM if confirm and about.kind == "tool" else ALLOWED


def unknown(what: str) -> Decision:
    """There is none."""
    return Decision(False, f"no such {what}", ground="unknown")


def held_back(principal: Principal, scope: Scope, variant: str, kind: str, advertised: str) -> str:
    """Why the key itself does not reach so far; "" when it does."""
    if scope not in principal.scopes:
        return f"the key has no scope {scope!r}"
    if principal.variant is not None and principal.variant != variant:
        return f"the key is restricted to {principal.variant!r}"
    if principal.tools and kind == "resource":
        return "the key has a tool filter, which no resource passes"
    if principal.tools and not matches(advertised, principal.tools):
        return "the key's tool filter does not cover it"
    return ""


def covers(rule: Rule, about: About) -> bool:
    """Whether a rule speaks of it. Only rules about whole servers speak of prompts and resources."""
    if not fnmatchcase(about.server, rule.server):
        return False
    if about.kind != "tool":
        return rule.tool == "*" and rule.read_only is None and rule.destructive is None
    return (
        fnmatchcase(about.upstream, rule.tool)
        and rule.read_only in (None, about.hints.read_only)
        and rule.destructive in (None, about.hints.destructive)
    )


def believed(annotations: Mapping[str, Any]) -> Hints:
    """The hints in the decoded ``annotations`` of a trusted server's tool; what is not said is taken for the worse."""
    read_only = annotations.get("readOnlyHint") is True
    return Hints(read_only, not read_only and annotations.get("destructiveHint") is not False)


def unrestricted(policies: Iterable[Policy]) -> bool:
    """Whether the rules hold nothing back."""
    return not any(policy.allow or policy.deny or policy.confirm for policy in policies)


def _first(rules: Iterable[Rule], about: About) -> int | None:
    return next((number for number, rule in enumerate(rules) if covers(rule, about)), None)
