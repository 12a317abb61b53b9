"""What a server offers, drained."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from fake_opener import BOUND, LEGACY, MODERN, FakeConnection
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import Crashed
from mooring.instances import listing
from mooring.instances.listing import take
from mooring.nouns import Facts, Item
from mooring.wire.jsonrpc import METHOD_NOT_FOUND, Answer, failure


def page(member: str, *items: bytes, cursor: bytes | None = None) -> Answer:
    tail = b"" if cursor is None else b',"nextCursor":' + cursor
    return Answer(result=b'{"' + member.encode() + b'":[' + b",".join(items) + b"]" + tail + b"}")


def connection(facts: Facts = LEGACY) -> FakeConnection:
    made = FakeConnection(facts)
    made.replies["tools/list"] = lambda _: page("tools", b'{"name":"now"}')
    made.replies["prompts/list"] = lambda _: page("prompts", b'{"name":"greet"}')
    made.replies["resources/list"] = lambda _: page("resources", b'{"uri":"file:///a"}')
    made.replies["resources/templates/list"] = lambda _: page("resourceTemplates", b'{"uriTemplate":"file:///{x}"}')
    return made


async def test_all_four_lists_are_taken_with_their_raw_bytes() -> None:
    """A16"""
    made = connection()
    raw = b'{ "name" : "now", "n":123456789012345678901234567890, "e":1e999,"s":"\\ud800", "name":"then" }'
    made.replies["tools/list"] = lambda _: page("tools", raw, b' {"name":"\xc3\xa9"} ')
    got = await take(made, 12.5)
    assert got.tools == (Item("then", raw), Item("é", b'{"name":"\xc3\xa9"}'))
    assert got.prompts == (Item("greet", b'{"name":"greet"}'),)
    assert got.resources == (Item("file:///a", b'{"uri":"file:///a"}'),)
    assert got.templates == (Item("file:///{x}", b'{"uriTemplate":"file:///{x}"}'),)
    assert (got.problems, got.taken_at, got.facts) == ((), 12.5, LEGACY)


async def test_lists_that_the_server_does_not_declare_are_not_asked_for() -> None:
    """A16: capability checks before optional calls."""
    made = connection(MODERN)
    got = await take(made, 0, complete=lambda facts, params: params)
    assert [method for method, _ in made.asked] == ["tools/list"]
    assert got.prompts == got.resources == got.templates == ()


async def test_pages_are_followed_with_the_very_cursor_the_server_gave() -> None:
    """A16: pagination of lists."""
    made = connection(MODERN)
    pages = {
        b"{}": page("tools", b'{"name":"a"}', cursor=rb'"\ud800\u0061"'),
        rb'{"cursor":"\ud800\u0061"}': page("tools", b'{"name":"b"}', cursor=b'"2"'),
        b'{"cursor":"2"}': page("tools", cursor=b'"3"'),
        b'{"cursor":"3"}': page("tools", b'{"name":"c"}', cursor=b"null"),
    }
    made.replies["tools/list"] = pages.__getitem__
    got = await take(made, 0)
    assert [item.name for item in got.tools] == ["a", "b", "c"]
    assert got.problems == ()


async def test_a_repeated_cursor_stops_the_list_and_is_reported() -> None:
    made = connection()
    made.replies["tools/list"] = lambda _: page("tools", b'{"name":"a"}', cursor=b'"1"')
    got = await take(made, 0)
    assert len(got.tools) == 1  # the page that came twice is there once
    assert got.problems == ("tools/list: the server repeats a cursor; stopped there",)
    assert got.prompts


async def test_endless_lists_are_cut_at_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_PAGES", 5)
    monkeypatch.setattr(listing, "MAX_ITEMS", 7)
    made = connection()
    count = iter(range(1000))

    def items(number: int) -> list[bytes]:
        return [b'{"name":"%d"}' % next(count) for _ in range(number)]

    made.replies["tools/list"] = lambda _: page("tools", *items(1), cursor=b'"%d"' % next(count))
    made.replies["prompts/list"] = lambda _: page("prompts", *items(3), cursor=b'"p%d"' % next(count))
    got = await take(made, 0)
    assert (len(got.tools), len(got.prompts)) == (5, 7)
    assert got.problems == (
        "tools/list: more than 5 pages; the rest is left out",
        "prompts/list: more than 7 items; the rest is left out",
    )


async def test_one_failed_list_is_reported_and_costs_the_others_nothing() -> None:
    """R12"""
    made = connection()
    made.replies["tools/list"] = lambda _: failure(-32603, "database is down")
    del made.replies["prompts/list"]
    got = await take(made, 0)
    assert got.problems == (
        "tools/list: error -32603: database is down",
        "prompts/list: error -32601: no such method",
    )
    assert (len(got.tools), len(got.resources), len(got.templates)) == (0, 1, 1)


async def test_resources_without_templates_are_no_problem() -> None:
    made = connection()
    made.replies["resources/templates/list"] = lambda _: failure(METHOD_NOT_FOUND, "Method not found")
    got = await take(made, 0)
    assert got.problems == ()
    assert got.resources


async def test_a_failed_list_keeps_the_last_good_one() -> None:
    made = connection()
    before = await take(made, 0)
    made.replies["tools/list"] = lambda _: failure(-32603, "down")
    made.replies["prompts/list"] = lambda _: page("prompts")
    got = await take(made, 1, before=before)
    assert got.tools == before.tools
    assert got.prompts == ()


async def test_a_list_that_never_answers_is_given_up_and_the_others_are_kept() -> None:
    made = connection()
    made.replies["tools/list"] = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
    got = await take(made, 0, limit=0.05)
    assert got.problems == ("tools/list: no answer within 0.05 s",)
    assert got.prompts


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (b"[]", "tools/list: not the expected shape: an object was expected"),
        (b"{}", "tools/list: not the expected shape: the list is missing"),
        (b'{"tools":{}}', "tools/list: not the expected shape: the list is not an array"),
        (rb'{"tools":{"\ud800":1}}', "tools/list: not the expected shape: the list is not an array"),
        (b'{"tools":[1,{},{"name":""},{"name":3}]}', "tools/list: 4 without a name, left out"),
    ],
)
async def test_what_has_the_wrong_shape_is_reported(result: bytes, problem: str) -> None:
    made = connection()
    made.replies["tools/list"] = lambda _: Answer(result=result)
    got = await take(made, 0)
    assert got.problems == (problem,)
    assert got.tools == ()
    assert got.prompts


async def test_a_server_that_ends_meanwhile_is_an_error_not_an_empty_listing() -> None:
    made = connection()
    made.replies["tools/list"] = lambda _: asyncio.Event().wait()  # type: ignore[assignment, return-value]
    asyncio.get_running_loop().call_later(0.01, made.closed.set_result, "gone")
    with pytest.raises(Crashed, match="gone"):
        async with asyncio.timeout(BOUND):
            await take(made, 0)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=8,
)


@given(st.lists(json_values), st.sampled_from(["", " ", "\n\t"]))
def test_elements_come_apart_the_same_way_on_both_paths(values: list, space: str) -> None:
    raws = [msgspec.json.encode(value) for value in values]
    joined = (space + "," + space).encode().join(raws)
    raw = b"[" + space.encode() + joined + space.encode() + b"]"
    assert [bytes(one) for one in listing._elements(msgspec.Raw(raw))] == raws
    surrogate = b'"\\ud800"'
    odd = b"[" + surrogate + (b"," + space.encode() + joined if raws else b"") + b"]"
    assert [bytes(one) for one in listing._elements(msgspec.Raw(odd))] == [surrogate, *raws]
