"""What one key sees."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mooring.config.plan import Mount, Variant
from mooring.config.plan_servers import Functions
from mooring.nouns import Caching, Facts, Item, Listing, Principal
from mooring.relay.table import build
from mooring.relay.view import MISSING_KEY, View

CAPABILITIES = b'{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}}'


def variant(name: str) -> Variant:
    return Variant(id=name, server=name, kwargs="{}", digest="d", launch=Functions(name))


def listing(name: str, capabilities: bytes = CAPABILITIES, instructions: str = "") -> Listing:
    return Listing(
        Facts("legacy", "2025-11-25", capabilities, instructions=instructions),
        tools=(Item("t", b'{"name":"t"}'),),
        prompts=(Item("p", b'{"name":"p"}'),),
        resources=(Item(f"{name}://r", b'{"uri":"%s://r"}' % name.encode()),),
        templates=(Item(name + "://x/{id}", b'{"uriTemplate":"%s://x/{id}"}' % name.encode()),),
    )


def view(principal: Principal = Principal("k", "w"), missing: dict[str, str] | None = None, **listed: Listing) -> View:
    listed = listed or {"a": listing("a"), "b": listing("b")}
    names = [*listed, *(missing or {})]
    mounts = [Mount("w", name, name, name) for name in names]
    table = build(mounts, {name: variant(name) for name in names}, listed)
    return View(principal, table, listed, missing or {})


def decoded(raw: bytes | None) -> Any:
    assert raw is not None
    return msgspec.json.decode(raw)


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
def test_each_list_is_one_page_in_order_and_kept_as_ready_bytes(method: str, member: str) -> None:
    seen = view()
    first = seen.listing(method, "legacy")
    assert len(decoded(first)[member]) == 2
    assert set(decoded(first)) == {member}
    assert seen.listing(method, "legacy") is first


def test_a_modern_list_has_a_type_and_forbids_caching() -> None:
    result = decoded(view().listing("tools/list", "modern"))
    assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == ("complete", 0, "private")


def caching(name: str, ttl: int, public: bool, taken_at: float = 100.0) -> Listing:
    said = dict.fromkeys(("tools/list", "resources/list"), Caching(ttl, public))
    return msgspec.structs.replace(listing(name), caching=said, taken_at=taken_at)


ANYBODY = Principal("anonymous:w", "w")


@pytest.mark.parametrize(
    ("principal", "missing", "parts", "expected"),
    [
        (ANYBODY, {}, {"a": caching("a", 5000, True)}, (4000, "public")),
        (ANYBODY, {}, {"a": caching("a", 5000, True), "b": caching("b", 3000, True, 99.0)}, (1000, "public")),
        (ANYBODY, {}, {"a": caching("a", 5000, True), "b": caching("b", 60_000, False)}, (4000, "private")),
        (ANYBODY, {}, {"a": caching("a", 5000, True), "legacy": listing("legacy")}, (0, "private")),
        (ANYBODY, {}, {"a": caching("a", 5000, True), "other": listing("other", b'{"prompts":{}}')}, (4000, "public")),
        (ANYBODY, {}, {"a": caching("a", 500, True)}, (0, "public")),
        (ANYBODY, {"c": "starting"}, {"a": caching("a", 5000, True)}, (0, "private")),
        (Principal("k", "w"), {}, {"a": caching("a", 5000, True)}, (4000, "private")),
        (Principal("k", "w", variant="none"), {}, {"a": caching("a", 5000, True)}, (0, "private")),
    ],
)
def test_a_list_may_be_reused_as_briefly_and_narrowly_as_its_strictest_part(
    principal: Principal, missing: dict[str, str], parts: dict[str, Listing], expected: tuple[int, str]
) -> None:
    seen = view(principal, missing, **parts)
    for method in ("tools/list", "resources/list"):
        result = decoded(seen.listing(method, "modern", 101.0))
        assert (result["ttlMs"], result["cacheScope"]) == expected
    later = decoded(seen.listing("tools/list", "modern", 101.1))
    assert later["ttlMs"] == max(expected[0] - 100, 0)
    assert {**later, "ttlMs": 0} == {**decoded(seen.listing("tools/list", "modern", 999.0)), "ttlMs": 0}


def test_what_is_missing_is_named_with_the_reason() -> None:
    """R12: a caller gets a reason for each server, and the others' tools."""
    result = decoded(view(missing={"c": "it exploded"}).listing("tools/list", "legacy"))
    assert result["_meta"] == {MISSING_KEY: [{"server": "c", "reason": "it exploded"}]}
    assert len(result["tools"]) == 2


def test_a_server_that_told_only_a_part_is_named_in_the_list_that_lacks_it() -> None:
    """R12, A32: its other lists, and those of others, are as usual."""
    partial = msgspec.structs.replace(listing("a"), problems=("tools/list: no answer within 3 s",))
    seen = view(a=partial, b=listing("b"))
    result = decoded(seen.listing("tools/list", "modern"))
    assert result["_meta"] == {MISSING_KEY: [{"server": "a", "reason": "tools/list: no answer within 3 s"}]}
    assert len(result["tools"]) == 2
    assert "_meta" not in decoded(seen.listing("prompts/list", "legacy"))


def test_an_unknown_method_is_no_list() -> None:
    assert view().listing("tools/call", "legacy") is None


def test_a_tool_filter_hides_other_tools_and_all_resources() -> None:
    seen = view(Principal("k", "w", tools=("a_*",)))
    assert list(seen.tools) == ["a_t"]
    assert decoded(seen.listing("resources/list", "legacy"))["resources"] == []
    assert seen.resource("a://r", {}) is None


def test_a_key_for_one_variant_sees_only_that() -> None:
    seen = view(Principal("k", "w", variant="b"))
    assert list(seen.tools) == ["b_t"]
    assert seen.resource("a://r", {}) is None
    assert seen.resource("b://r", {}) is not None


def test_a_key_that_may_only_call_sees_no_lists() -> None:
    assert view(Principal("k", "w", scopes=("call",))).tools == {}


def test_a_uri_goes_to_the_exact_resource_first_then_to_a_template() -> None:
    seen = view()
    exact, covered = seen.resource("a://r", {}), seen.resource("b://x/7", {})
    assert exact is not None
    assert covered is not None
    assert (exact.variant.id, covered.variant.id) == ("a", "b")


def test_a_uri_that_a_server_handed_out_goes_back_to_it() -> None:
    found = view().resource("other://1", {"other://1": "b"})
    assert found is not None
    assert found.variant.id == "b"


def test_an_unknown_uri_goes_to_the_only_server_with_resources_else_to_nobody() -> None:
    only = view(a=listing("a"), b=listing("b", b'{"tools":{}}'))
    found = only.resource("other://1", {})
    assert found is not None
    assert found.variant.id == "a"
    assert view().resource("other://1", {}) is None


def test_a_template_is_found_as_listed_and_by_a_uri_it_covers() -> None:
    for reference in ("b://x/{id}", "b://x/9"):
        found = view().template(reference)
        assert found is not None
        assert found.variant.id == "b"
    assert view(Principal("k", "w", tools=("x",))).template("b://x/{id}") is None


def test_capabilities_are_what_the_servers_said_and_all_while_one_is_unheard() -> None:
    assert view(a=listing("a", b'{"tools":{}}')).capabilities("legacy") == {"tools": {"listChanged": True}}
    assert set(view().capabilities("modern")) == {"tools", "prompts", "resources", "completions", "logging"}
    unheard = view(missing={"c": "starting"}, a=listing("a", b'{"tools":{}}'))
    assert set(unheard.capabilities("modern")) == {"tools", "prompts", "resources", "completions", "logging"}


def test_capabilities_that_nobody_here_knows_are_offered_to_clients_of_the_servers_era() -> None:
    """R27, A17: those of several servers together; the first one's word counts."""
    one = b'{"tools":{},"extensions":{"x/y":{"n":1e2},"x/z":{}},"vendor":[1],"tasks":{"list":{},"cancel":{}}}'
    two = b'{"extensions":{"x/y":{"n":2},"w/w":{}},"experimental":{"e":null},"vendor":[2]}'
    seen = view(a=listing("a", one), b=listing("b", two))
    expected = {
        "tools": {"listChanged": True},
        "extensions": {"x/y": {"n": 100.0}, "x/z": {}, "w/w": {}},
        "vendor": [1],
        "tasks": {"cancel": {}},
        "experimental": {"e": None},
    }
    assert decoded(msgspec.json.encode(seen.capabilities("legacy"))) == expected
    assert set(seen.capabilities("modern")) == {"tools"}
    restricted = view(Principal("k", "w", tools=("a_*",)), a=listing("a", one))
    assert set(restricted.capabilities("legacy")) == {"tools"}


def test_a_restricted_key_learns_nothing_of_servers_that_are_not_for_it() -> None:
    listed = {"a": listing("a", instructions="Of a."), "b": listing("b", instructions="Of b.")}
    one = view(Principal("k", "w", variant="a"), {"c": "it exploded"}, **listed)
    assert (one.instructions(), one.missing) == ("# a\nOf a.", {})
    assert view(Principal("k", "w", tools=("b_*",)), **listed).instructions() == "# b\nOf b."


def test_a_key_that_may_only_call_still_reaches_resources() -> None:
    seen = view(Principal("k", "w", scopes=("call",)))
    assert decoded(seen.listing("resources/list", "legacy"))["resources"] == []
    assert seen.resource("a://r", {}) is not None
    assert view(Principal("k", "w", scopes=("list",))).resource("a://r", {}) is None


def test_instructions_stand_under_their_prefix() -> None:
    seen = view(a=listing("a", instructions="Be kind."), b=listing("b"))
    assert seen.instructions() == "# a\nBe kind."
