"""Who may list and call what."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.access.policy import (
    About,
    Hints,
    believed,
    covers,
    decide,
    held_back,
    matches,
    offered,
    unrestricted,
)
from mooring.config.plan import Mount, Policy, Rate, Rule, ToolRules, Variant
from mooring.config.plan_servers import Functions
from mooring.nouns import Facts, Item, Listing, Principal, Scope
from mooring.relay.table import build
from mooring.relay.view import View

NAMES = st.text("ab_", min_size=1, max_size=6)
GLOBS = st.lists(st.text("ab_*?", min_size=1, max_size=4), max_size=3).map(tuple)
SCOPES = st.sets(st.sampled_from(["call", "list"])).map(lambda found: tuple(sorted(found)))
RULES = st.builds(ToolRules, allow=GLOBS, deny=GLOBS)
KEYS = st.builds(Principal, st.just("k"), st.just("w"), SCOPES, st.none() | st.sampled_from(["a", "b", "gone"]), GLOBS)


SERVERS = st.sampled_from(["a", "b"])
HINTS = st.builds(Hints, st.booleans(), st.booleans())
ABOUTS = st.builds(
    About,
    st.sampled_from(["tool", "prompt", "resource"]),
    SERVERS,
    SERVERS,
    NAMES,
    NAMES,
    HINTS,
    st.booleans(),
    st.sampled_from(["", "its definition changed"]),
)
WRITTEN = st.builds(
    Rule,
    st.sampled_from(["*", "a", "b", "?"]),
    st.just("*") | st.text("ab_*?", min_size=1, max_size=4),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
)
SOME = st.lists(WRITTEN, max_size=3).map(tuple)
POLICIES = st.lists(st.builds(Policy, st.just("the policy"), SOME, SOME, SOME), max_size=2).map(tuple)


@given(KEYS, ABOUTS, POLICIES)
def test_listing_and_calling_agree_for_a_key_with_both_scopes(
    key: Principal, about: About, policies: tuple[Policy, ...]
) -> None:
    """R23, invariant 5: what is hidden is forbidden, and what is listed may be called."""
    both = Principal(key.key_id, key.workspace, ("call", "list"), key.variant, key.tools)
    assert decide(both, "list", about, policies) == decide(both, "call", about, policies)


@given(KEYS, ABOUTS, POLICIES, st.sampled_from(["call", "list"]))
def test_all_that_has_a_say_has_to_agree(
    key: Principal, about: About, policies: tuple[Policy, ...], scope: Scope
) -> None:
    decision = decide(key, scope, about, policies)
    held = held_back(key, scope, about.variant, about.kind, about.advertised)
    rules = [
        not any(covers(rule, about) for rule in policy.deny)
        and (not policy.allow or any(covers(rule, about) for rule in policy.allow))
        for policy in policies
    ]
    assert decision.allowed is (not about.blocked and not held and all(rules))
    assert decision.reason
    asked = about.confirm or any(covers(rule, about) for policy in policies for rule in policy.confirm)
    assert decision.confirm is (decision.allowed and asked and about.kind == "tool")


@given(KEYS, ABOUTS, POLICIES, st.builds(Policy, st.just("one more"), SOME, SOME, SOME))
def test_another_policy_can_only_take_away(
    key: Principal, about: About, policies: tuple[Policy, ...], more: Policy
) -> None:
    before, after = decide(key, "call", about, policies), decide(key, "call", about, (*policies, more))
    assert before.allowed or not after.allowed
    assert not before.confirm or after.confirm or not after.allowed


@given(KEYS, ABOUTS, st.sampled_from(["call", "list"]))
def test_a_restriction_of_a_key_can_only_take_away(key: Principal, about: About, scope: Scope) -> None:
    assert (not held_back(key, scope, about.variant, about.kind, about.advertised)) is (
        scope in key.scopes
        and key.variant in (None, about.variant)
        and (
            not key.tools
            or (about.kind != "resource" and any(fnmatchcase(about.advertised, glob) for glob in key.tools))
        )
    )


@pytest.mark.parametrize(
    ("annotations", "hints"),
    [
        ({}, Hints(False, True)),
        ({"readOnlyHint": True}, Hints(True, False)),
        ({"readOnlyHint": True, "destructiveHint": True}, Hints(True, False)),
        ({"destructiveHint": False}, Hints(False, False)),
        ({"readOnlyHint": "yes", "destructiveHint": 0}, Hints(False, True)),
    ],
)
def test_what_a_trusted_server_does_not_say_is_taken_for_the_worse(annotations: dict[str, Any], hints: Hints) -> None:
    """R23"""
    assert believed(annotations) == hints


def test_only_rules_about_whole_servers_speak_of_prompts_and_resources() -> None:
    prompt = About("prompt", "a", "a", "a_p", "p")
    assert covers(Rule("a"), prompt)
    for rule in (Rule("a", "p"), Rule("a", read_only=False), Rule("a", destructive=True), Rule("b")):
        assert not covers(rule, prompt)


def test_a_refusal_names_the_rule() -> None:
    """R24: the reason is for the audit log."""
    about = About("tool", "a", "a", "a_rm", "rm")
    policy = Policy("the policy of w", allow=(Rule("a"),), deny=(Rule(tool="x"), Rule(tool="rm")))
    assert decide(Principal("k", "w"), "call", about, (policy,)).reason == "deny[1] of the policy of w"
    other = Policy("the policy of w", allow=(Rule("b"),))
    assert decide(Principal("k", "w"), "call", about, (other,)).reason == "no allow rule of the policy of w covers it"


def test_another_mooring_of_this_user_has_asked_a_person_itself() -> None:
    about = About("tool", "a", "a", "a_rm", "rm", confirm=True)
    policy = Policy("p", confirm=(Rule(),))
    assert decide(Principal("k", "w"), "call", about, (policy,)).confirm
    assert not decide(Principal("k", "w", ours=True), "call", about, (policy,)).confirm


def test_a_policy_that_only_counts_holds_nothing_back() -> None:
    assert unrestricted((Policy("p", rate=Rate(1)),))
    assert not unrestricted((Policy("p", confirm=(Rule(),)),))


@given(NAMES, RULES, RULES)
def test_every_filter_counts_and_deny_wins(name: str, one: ToolRules, two: ToolRules) -> None:
    assert offered(name, one, two) is (offered(name, one) and offered(name, two))
    if matches(name, one.deny):
        assert not offered(name, one)


@given(KEYS, st.lists(NAMES, unique=True, max_size=4), RULES, RULES)
def test_a_view_lists_exactly_what_policy_and_filters_allow(
    key: Principal, names: list[str], server: ToolRules, mount: ToolRules
) -> None:
    """R23, R24, A31: enforced in one place."""
    variant = Variant(id="a", server="a", kwargs="{}", digest="d", launch=Functions("a"), tools=server)
    listing = Listing(Facts("legacy", "x"), tools=tuple(Item(name, b'{"name":"x"}') for name in names))
    table = build([Mount("w", "p", "a", "a", tools=mount)], {"a": variant}, {"a": listing})
    view = View(key, table, {"a": listing}, {})
    expected = {
        f"p_{name}"
        for name in names
        if offered(name, server, mount) and not held_back(key, "list", "a", "tool", f"p_{name}")
    }
    assert set(view.tools) == expected
    for route in view.tools.values():
        assert "call" not in key.scopes or view.for_call(route).allowed


def test_no_filter_at_all_offers_everything_and_globs_mind_the_case() -> None:
    assert offered("anything")
    assert not offered("Anything", ToolRules(allow=("any*",)))
