"""Who may list and call what."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from mooring.access.policy import check, matches, offered
from mooring.config.plan import Functions, Mount, ToolRules, Variant
from mooring.nouns import Facts, Item, Listing, Principal, Scope
from mooring.relay.table import build
from mooring.relay.view import View

NAMES = st.text("ab_", min_size=1, max_size=6)
GLOBS = st.lists(st.text("ab_*?", min_size=1, max_size=4), max_size=3).map(tuple)
SCOPES = st.sets(st.sampled_from(["call", "list"])).map(lambda found: tuple(sorted(found)))
RULES = st.builds(ToolRules, allow=GLOBS, deny=GLOBS)
KEYS = st.builds(Principal, st.just("k"), st.just("w"), SCOPES, st.none() | st.sampled_from(["a", "b", "gone"]), GLOBS)


@given(KEYS, NAMES, st.sampled_from(["a", "b"]))
def test_listing_and_calling_agree_for_a_key_with_both_scopes(key: Principal, name: str, variant: str) -> None:
    """Invariant 5: what is hidden is forbidden, and what is listed may be called."""
    both = Principal(key.key_id, key.workspace, ("call", "list"), key.variant, key.tools)
    assert check(both, "list", name, variant).allowed is check(both, "call", name, variant).allowed


@given(KEYS, NAMES, st.sampled_from(["a", "b"]), st.sampled_from(["call", "list"]))
def test_a_restriction_can_only_take_away(key: Principal, name: str, variant: str, scope: Scope) -> None:
    decision = check(key, scope, name, variant)
    assert decision.allowed is (
        scope in key.scopes
        and key.variant in (None, variant)
        and (not key.tools or any(fnmatchcase(name, glob) for glob in key.tools))
    )
    assert decision.reason


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
        f"p_{name}" for name in names if offered(name, server, mount) and check(key, "list", f"p_{name}", "a").allowed
    }
    assert set(view.tools) == expected
    for route in view.tools.values():
        assert "call" not in key.scopes or check(key, "call", route.advertised, "a").allowed


def test_no_filter_at_all_offers_everything_and_globs_mind_the_case() -> None:
    assert offered("anything")
    assert not offered("Anything", ToolRules(allow=("any*",)))
