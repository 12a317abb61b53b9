"""Routes: names, clashes, filters, URIs."""

from __future__ import annotations

import string

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mooring.config.plan import Mount, ToolRules, Variant
from mooring.config.plan_servers import Functions, Process, Remote
from mooring.nouns import Facts, Item, Listing
from mooring.relay.table import NAME_LIMIT, advertised, build, literal_prefix

FACTS = Facts("legacy", "2025-11-25", b'{"tools":{},"resources":{}}')
LEGAL = set(string.ascii_letters + string.digits + "_-")


def variant(name: str, rules: ToolRules = ToolRules()) -> Variant:
    return Variant(id=name, server=name, kwargs="{}", digest="d", launch=Functions(name), tools=rules)


def mount(name: str, prefix: str | None = None, rules: ToolRules = ToolRules()) -> Mount:
    return Mount("w", name if prefix is None else prefix, name, name, tools=rules)


def tools(*names: str) -> tuple[Item, ...]:
    return tuple(Item(name, msgspec.json.encode({"name": name, "x": 1})) for name in names)


def uris(*names: str) -> tuple[Item, ...]:
    return tuple(Item(name, msgspec.json.encode({"uri": name})) for name in names)


def test_a_tool_is_offered_under_prefix_and_name_and_keeps_all_its_members() -> None:
    raw = b'{"title":"T","name":"get.time","vendor":{"n":123456789012345678901234567890},"a":"\\ud800"}'
    listing = Listing(FACTS, tools=(Item("get.time", raw),))
    table = build([mount("time")], {"time": variant("time")}, {"time": listing})
    route = table.tools["time_get_time"]
    assert route.upstream == "get.time"
    expected = b'{"title":"T","name":"time_get_time","vendor":{"n":123456789012345678901234567890},"a":"\\ud800"}'
    assert route.raw == expected


def test_an_empty_prefix_passes_names_and_bytes_through_unchanged() -> None:
    listing = Listing(FACTS, tools=(Item("a.b/ c", b'{ "name" : "a.b/ c" }'),))
    table = build([mount("s", "")], {"s": variant("s")}, {"s": listing})
    assert table.tools["a.b/ c"].raw == b'{ "name" : "a.b/ c" }'


def test_order_is_that_of_the_configuration_then_of_the_server() -> None:
    """A11: start order never changes tool order."""
    listings = {"a": Listing(FACTS, tools=tools("z", "y")), "b": Listing(FACTS, tools=tools("x"))}
    variants = {"a": variant("a"), "b": variant("b")}
    assert list(build([mount("b"), mount("a")], variants, listings).tools) == ["b_x", "a_z", "a_y"]


def test_clashing_names_are_all_withdrawn_and_reported() -> None:
    """A20, invariant 6: a permission written for one can never apply to the other."""
    listings = {"a": Listing(FACTS, tools=tools("b_c", "ok")), "a-b": Listing(FACTS, tools=tools("c"))}
    table = build([mount("a"), mount("a-b", "a_b")], {n: variant(n) for n in listings}, listings)
    assert list(table.tools) == ["a_ok"]
    assert [problem.level for problem in table.problems] == ["error"]
    assert "a_b_c" in table.problems[0].message


def test_two_tools_of_one_server_that_become_equal_are_withdrawn() -> None:
    table = build([mount("s")], {"s": variant("s")}, {"s": Listing(FACTS, tools=tools("x.y", "x_y", "z"))})
    assert list(table.tools) == ["s_z"]


def test_filters_of_server_and_mount_both_apply_and_deny_wins() -> None:
    listing = Listing(FACTS, tools=tools("read", "write", "delete", "list"))
    variants = {"s": variant("s", ToolRules(deny=("delete",)))}
    table = build(
        [mount("s", rules=ToolRules(allow=("re*", "wr*", "delete"), deny=("write",)))], variants, {"s": listing}
    )
    assert list(table.tools) == ["s_read"]


def test_equal_uris_belong_to_the_earlier_mount_and_are_reported() -> None:
    listings = {name: Listing(FACTS, resources=uris("file:///a")) for name in ("a", "b")}
    table = build([mount("b"), mount("a")], {n: variant(n) for n in listings}, listings)
    assert table.resources["file:///a"].mount.server == "b"
    assert [problem.level for problem in table.problems] == ["warning"]


def test_templates_are_tried_longest_literal_prefix_first_and_listed_in_order() -> None:
    listing = Listing(FACTS, templates=uris("a://{x}", "a://b/{x}"))
    table = build([mount("s")], {"s": variant("s")}, {"s": listing})
    assert [route.upstream for route in table.templates] == ["a://b/{x}", "a://{x}"]
    assert [route.upstream for route in table.template_order] == ["a://{x}", "a://b/{x}"]


def test_a_mount_without_a_listing_contributes_nothing_and_hides_nothing() -> None:
    """R12: a server that failed never hides another."""
    variants = {"a": variant("a"), "b": variant("b")}
    assert list(build([mount("a"), mount("b")], variants, {"b": Listing(FACTS, tools=tools("x"))}).tools) == ["b_x"]


@given(st.from_regex(r"[a-z0-9_]{1,40}", fullmatch=True), st.text(min_size=1, max_size=200))
def test_advertised_names_are_legal_bounded_and_pure(prefix: str, name: str) -> None:
    """A20: legal for every model API, deterministic, at most 64 characters with a client's own prefix."""
    shown = advertised(prefix, name)
    assert set(shown) <= LEGAL
    assert len(shown) <= NAME_LIMIT
    assert shown == advertised(prefix, name)


@given(st.lists(st.text("ab", min_size=70, max_size=90), unique=True, min_size=2, max_size=20))
def test_long_names_that_share_a_beginning_stay_apart(names: list[str]) -> None:
    long = [f"{'x' * 60}{name}" for name in names]
    assert len({advertised("p", name) for name in long}) == len(long)


def test_a_name_of_exactly_sixty_characters_is_kept_and_one_more_is_shortened() -> None:
    assert advertised("p", "x" * 58) == "p_" + "x" * 58
    shortened = advertised("p", "x" * 59)
    assert len(shortened) == 60
    assert shortened.startswith("p_" + "x" * 49 + "_")


def test_the_literal_prefix_of_a_template_ends_at_its_first_expression() -> None:
    assert literal_prefix("file:///{+path}") == "file:///"
    assert literal_prefix("plain") == "plain"


def test_a_tool_whose_marks_break_the_rules_is_left_out_only_where_it_would_be_used_over_http() -> None:
    """SEP-2243: HTTP clients must reject such a definition; a server on stdio never sees a header."""
    schema = {"type": "object", "properties": {"r": {"type": "array", "x-mcp-header": "R"}}}
    right = {"type": "object", "properties": {"r": {"type": "string", "x-mcp-header": "R"}}}
    offered = tuple(
        Item(name, msgspec.json.encode({"name": name, "inputSchema": given}))
        for name, given in (("wrong", schema), ("right", right))
    )
    launches = {"remote": Remote("https://x.test/mcp"), "port": Process(("x",), port=1), "stdio": Process(("x",))}
    for name, launch in launches.items():
        for era in ("legacy", "modern"):
            listing = Listing(Facts(era, "v", b'{"tools":{}}'), tools=offered)
            definition = msgspec.structs.replace(variant(name), launch=launch)
            table = build([mount(name, "")], {name: definition}, {name: listing})
            kept = ["right"] if era == "modern" and name != "stdio" else ["wrong", "right"]
            assert list(table.tools) == kept
            assert [mark.header for mark in table.tools["right"].marks] == ["Mcp-Param-R"]
            assert ["'wrong' of" in problem.message for problem in table.problems] == [True] * (2 - len(kept))
