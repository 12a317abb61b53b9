"""Finding entries in the store: ranking end to end, filters, copies, what is remembered."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from mooring.catalog.entry import Entry, ToolNote
from mooring.errors import ConfigError

QUERIES = Path(__file__).parents[2] / "benchmarks" / "search" / "queries.toml"


def entry(id: str, **more: Any) -> Entry:
    source, _, name = id.partition("/")
    return Entry(id=id, **({"source": source, "name": name} | more))


@pytest.mark.parametrize(("third", "first", "five"), [("names", 0.95, 1.0), ("typos", 0.9, 1.0), ("tasks", 0.75, 0.95)])
async def test_the_labelled_queries_find_their_answers(stocked: Any, third: str, first: float, five: float) -> None:
    """R31: by name, misspelt, and by what somebody wants to do. The benchmark has the exact figures."""
    queries: dict[str, list[str]] = tomllib.loads(QUERIES.read_text())[third]
    found = [(await stocked.ids(query, limit=5), set(want)) for query, want in queries.items()]
    assert sum(bool(want & set(ids[:1])) for ids, want in found) >= first * len(found)
    assert sum(bool(want & set(ids)) for ids, want in found) >= five * len(found)


async def test_exact_id_and_name_come_first(stocked: Any) -> None:
    """R31"""
    assert (await stocked.ids("docker/sqlite"))[0] == "docker/sqlite"
    assert (await stocked.ids("  GitHub "))[0] == "docker/github-official"
    assert (await stocked.ids("git"))[0] == "docker/git"


async def test_the_same_question_has_the_same_answer_whenever_it_came_in(opened: Any) -> None:
    """R31: deterministic, whatever the order of arrival."""
    made = [entry(f"s/{name}", description="Moves money between accounts") for name in "fdbace"]
    answers: list[list[str]] = []
    for number, order in enumerate((made, made[::-1])):
        desk = await opened()
        await desk.shelf.put("s", order, number, 1.0)
        answers.append(await desk.ids("money accounts"))
        await desk.shelf.forget("s", 2.0)
    assert answers[0] == answers[1] == [f"s/{name}" for name in "abcdef"]


async def test_tools_of_entries_are_searched(desk: Any) -> None:
    await desk.shelf.put("s", [entry("s/a"), entry("s/b", tools=(ToolNote(name="peelBanana"),))], 1, 1.0)
    assert await desk.ids("peel") == ["s/b"]


async def test_filters_come_before_the_cut_off(desk: Any) -> None:
    """R31: hundreds of better matches elsewhere hide nothing."""
    many = [entry(f"loud/money-{number}", description="money " * 5) for number in range(600)]
    await desk.shelf.put("loud", many, 1, 1.0)
    quiet = entry("quiet/x", description="and money", categories=("Finance",), tags=("Cash",))
    await desk.shelf.put("quiet", [quiet, entry("quiet/y", description="no coins", categories=("Other",))], 1, 1.0)
    assert "quiet/x" not in await desk.ids("money", limit=100)
    for filters in ({"sources": ("quiet",)}, {"categories": ("finance",)}, {"tags": ("CASH",)}):
        assert await desk.ids("money", **filters) == ["quiet/x"]
    assert await desk.ids(categories=("FINANCE", "other"), sources=("quiet",)) == ["quiet/x", "quiet/y"]


async def test_official_and_featured_can_be_asked_for(stocked: Any) -> None:
    assert "docker/duckduckgo" in await stocked.ids("web search")
    assert "docker/duckduckgo" not in await stocked.ids("web search", official_only=True)
    featured = await stocked.ids(featured_only=True, limit=100)
    assert "docker/sqlite" in featured
    assert "docker/redis" not in featured


async def test_without_a_question_the_best_known_come(stocked: Any) -> None:
    found = await stocked.ids(limit=3)
    assert found == await stocked.ids("  ", limit=3)
    assert found[0] == "docker/github-official"


@pytest.mark.parametrize(
    ("filters", "why"),
    [
        ({"sources": ("dcoker",)}, 'no source "dcoker". There are: starter'),
        ({"categories": ("databse",)}, 'no category "databse". Did you mean database'),
        ({"tags": ("nope",)}, 'no tag "nope".* There are: .* and .* more'),
        ({"limit": 0}, "limit is 0; it needs to be from 1 to 100"),
        ({"limit": 101}, "limit is 101"),
    ],
)
async def test_filters_that_nothing_can_pass_are_errors(stocked: Any, filters: dict[str, Any], why: str) -> None:
    """R31: invalid filters are reported, with the valid ones."""
    with pytest.raises(ConfigError, match=why):
        await stocked.ids("x", **filters)


async def test_signs_of_the_query_language_are_only_text(stocked: Any) -> None:
    for query in ('"', "a AND (b OR", "names:x", "*", "NEAR(a b)", "'; DROP TABLE catalog", "\x00", "{x} : y", "💾"):
        await stocked.ids(query)
    assert await stocked.ids("sqlite")


async def test_of_copies_the_source_that_counts_first_is_taken(desk: Any) -> None:
    """The starter list has the same id as the source that it describes."""
    await desk.shelf.put("starter", [entry("docker/x", source="starter", name="Old")], 1, 1.0)
    await desk.shelf.put("docker", [entry("docker/x", source="docker", name="New")], 1, 2.0)
    assert await desk.ids("x") == ["docker/x"]
    for order in (("docker", "starter"), ("starter", "docker")):
        from mooring.catalog.search import Question

        (found,) = await desk.shelf.find(Question(query="docker/x"), order)
        assert found.entry.source == order[0]
    assert [kept.entry.name for kept in await desk.shelf.copies("Docker/X")] == ["New", "Old"]


async def test_first_seen_is_kept_and_what_went_can_come_back(desk: Any) -> None:
    """R32: first-seen dates, vanished entries."""
    await desk.shelf.put("s", [entry("s/a"), entry("s/b")], 1, 100.0)
    await desk.shelf.put("s", [entry("s/a", description="new words")], 2, 200.0)
    await desk.shelf.sweep("s", 2, 200.0)
    assert await desk.ids("b") == []
    (gone,) = await desk.shelf.copies("s/b")
    assert (gone.first_seen, gone.gone_at) == (100.0, 200.0)
    assert await desk.shelf.counts(200.0) == {"s": (1, 0, 1, 1)}
    await desk.shelf.put("s", [entry("s/b")], 3, 300.0)
    (back,) = await desk.shelf.copies("s/b")
    assert (back.first_seen, back.changed_at, back.gone_at) == (100.0, 300.0, None)
    assert await desk.ids("b") == ["s/b"]
    assert await desk.ids("words") == ["s/a"]


async def test_an_entry_that_did_not_change_keeps_its_time(desk: Any) -> None:
    for now in (100.0, 200.0):
        await desk.shelf.put("s", [entry("s/a")], 1, now)
    (kept,) = await desk.shelf.copies("s/a")
    assert kept.changed_at == 100.0


async def test_a_misspelling_is_understood_as_soon_as_the_word_is_there(desk: Any) -> None:
    await desk.shelf.put("s", [entry("s/alpha")], 1, 1.0)
    assert await desk.ids("zephyrr") == []
    await desk.shelf.put("s", [entry("s/zephyr")], 1, 1.0)
    assert await desk.ids("zephyrr") == ["s/zephyr"]
