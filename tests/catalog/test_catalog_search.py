"""Words, spelling and ranking: pure, and always the same."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.catalog import search, spelling
from mooring.catalog.entry import Entry, ToolNote
from mooring.catalog.search import COLUMNS, Candidate, Language, Question, Term
from mooring.catalog.words import compact, indexed, pieces, stem, words


def test_words_are_lower_case_without_accents_and_signs() -> None:
    assert words("Über-Café_2 (naïve)") == ["uber", "cafe", "2", "naive"]
    assert pieces("getPullRequestHTML") == ["get", "pull", "request", "html"]
    assert compact("Chrome DevTools") == "chromedevtools"


@pytest.mark.parametrize(
    "forms",
    [
        ("query", "queries"),
        ("scrape", "scraping", "scraper", "scrapes", "scraped"),
        ("crawl", "crawler", "crawling"),
        ("box", "boxes"),
        ("class", "classes"),
        ("search", "searches", "searching"),
        ("automate", "automation", "automations"),
        ("manage", "management", "manager"),
        ("run", "running", "runs"),
        ("move", "moving", "moves", "moved"),
        ("push", "pushes"),
    ],
)
def test_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1


@pytest.mark.parametrize("word", ["status", "axis", "ls", "s3", "ing", "bus", "e"])
def test_short_words_stay(word: str) -> None:
    assert stem(word) == word


@given(st.text(max_size=30))
def test_any_text_has_words_and_each_a_stem(text: str) -> None:
    for word in words(text):
        assert word
        assert stem(word)


def test_an_entry_is_indexed_by_its_names_labels_description_and_tools() -> None:
    entry = Entry(
        id="official/io.github.jane/file-mover-mcp",
        source="official",
        name="File Mover",
        own_name="io.github.jane/file-mover-mcp",
        description="Moves files",
        categories=("files",),
        tools=(ToolNote(name="moveFile", description="Moves one file"),),
    )
    found = indexed(entry)
    assert found.compact == "filemover"
    assert found.words.split() == ["file", "mover", "filemover"]
    assert "jane" in found.labels
    assert found.tools == "move file move one file"
    company = indexed(Entry(id="official/com.acme/mcp", source="official", name="mcp", own_name="com.acme/mcp"))
    assert company.words == "acme"


def near(word: str, there: Iterable[str]) -> list[tuple[str, float]]:
    """``spelling.near`` among these words."""
    of_length: dict[int, list[str]] = {}
    for other in sorted(set(there)):
        of_length.setdefault(len(other), []).append(other)
    return spelling.near(word, of_length)


def test_near_words_are_found_and_ordered() -> None:
    there = ["postgres", "postgresql", "git", "gitlab", "redis", "reddit", "playwright", "a"]
    assert [word for word, _ in near("postgers", there)] == ["postgres"]
    assert near("gti", there)[0][0] == "git"
    assert [word for word, _ in near("reddis", there)] == ["reddit", "redis"]
    assert near("playwrite", there)[0][0] == "playwright"
    assert near("zz", there) == near("12345", there) == near("unrelatedword", there) == []


@given(st.lists(st.text("abcde", min_size=2, max_size=8), max_size=30), st.text("abcde", min_size=1, max_size=8))
def test_words_of_other_lengths_need_not_be_there(there: list[str], word: str) -> None:
    found = near(word, there)
    assert found == near(word, [other for other in there if len(other) in spelling.lengths(word)])
    assert len(found) <= spelling.SUGGESTIONS
    assert all(nearness < 1 for _, nearness in found)


def test_words_that_say_nothing_are_left_out_unless_there_are_no_others() -> None:
    assert search.parsed("How can I find the MCP server for GitHub?") == ["find", "github"]
    assert search.parsed("the") == ["the"]
    assert search.parsed("  !? ") == []
    assert len(search.parsed(" ".join(f"word{number}" for number in range(100)))) == search.WORDS


def test_a_word_stands_for_itself_corrections_longer_words_and_synonyms() -> None:
    language = Language(
        known={"github", "dockerhub"},
        meant={"gihtub": [("github", 0.8)]},
        longer={"docker": ["dockerhub"], "hu": ["huge"]},
        synonyms={"hub": ("center",)},
    )
    found = search.terms(["docker", "hub", "gihtub", "hu"], language)
    said = {(term.concept, term.stem) for term in found}
    assert {(0, "dockerhub"), (1, "hub"), (1, stem("center")), (2, "gihtub"), (2, "github"), (4, "dockerhub")} <= said
    assert not [term for term in found if term.concept == 0 and term.stem == "github"]
    assert (3, "huge") not in said


def test_rare_words_that_no_entry_has_are_taken_for_misspelt_but_only_so_many() -> None:
    asked = ["known", "common", "aaa", "bbb", "ccc", "ddd"]
    found = search.misspelt(asked, {"known"}, lambda word: word != "common")
    assert found == ["aaa", "bbb"]
    assert len(found) == search.CORRECTED


def test_common_words_give_way_to_telling_ones() -> None:
    """However many entries there are, a question costs a bounded number of matches."""
    rare, common, hopeless = Term(0, 1.0, "rare"), Term(1, 1.0, "common"), Term(2, 1.0, "everywhere")
    frequencies = {
        ("rare", "names"): 10,
        ("common", "names"): 100,
        ("common", "description"): 10_000,
        ("everywhere", "names"): 10_000,
    }
    kept = search.affordable([hopeless, common, rare, Term(3, 1.0, "nowhere")], frequencies)
    assert [(term.stem, term.columns) for term in kept] == [("rare", COLUMNS), ("common", ("names", "labels"))]
    assert kept[1].match == '{names labels} : "common"'


def candidate(id: str, **more: object) -> Candidate:
    facts: dict[str, object] = {
        "key": 0, "source": "s", "compact": id, "names": id, "official": False, "featured": False, "popularity": 0.0
    }  # fmt: skip
    return Candidate(id=id, **(facts | more))  # type: ignore[arg-type]


def test_exact_id_comes_before_exact_name_before_everything_else() -> None:
    """R31: exact id and name first."""
    best = candidate("a/loud", compact="loud", names="loud", scores={0: 99.0}, popularity=100.0)
    name = candidate("a/1", compact="quiet", names="quiet", scores={0: 0.1})
    part = candidate("a/2", compact="veryquiet", names="very quiet", scores={0: 0.1})
    id = candidate("quiet", compact="other", names="other", scores={})
    order = search.ranked("Quiet", ["quiet"], [best, part, name, id])
    assert [found.id for found in order] == ["quiet", "a/1", "a/2", "a/loud"]


def test_of_entries_with_one_id_the_first_is_taken() -> None:
    one, two = candidate("x", source="trusted"), candidate("x", source="other", popularity=100.0)
    assert [found.source for found in search.ranked("x", ["x"], [one, two])] == ["trusted"]
    assert [found.source for found in search.by_standing([one, two])] == ["trusted"]


@given(st.permutations([candidate(f"s/{n}", scores={0: float(n % 3)}, popularity=float(n % 2)) for n in range(8)]))
def test_the_order_does_not_depend_on_the_order_of_candidates(found: list[Candidate]) -> None:
    """R31: deterministic."""
    expected = search.ranked("q", ["q"], sorted(found, key=lambda one: one.id))
    assert search.ranked("q", ["q"], found) == expected


def test_a_question_knows_whether_it_filters() -> None:
    assert not Question(query="x").filtered
    assert Question(tags=("a",)).filtered
    assert Question(official_only=True).filtered


def test_synonyms_are_mutual() -> None:
    groups = [["mail", "email"], ["mail", "letter"]]
    found = {word: search.synonyms(word, groups) for word in ("mail", "email", "letter", "post")}
    assert found == {"mail": ["email", "letter"], "email": ["mail"], "letter": ["mail"], "post": []}
