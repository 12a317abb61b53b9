"""From a question to a ranking: what to look for in the full-text index, and in which order to show what was found.

Pure: ``catalog.shelf`` asks the store in between. The same catalog and question always give the same order.

    parsed(question)        its words, without those that mean nothing
    misspelt(words, ...)    those of which somebody has to find out what was meant
    terms(words, ...)       for each word the ways to say it: itself, corrected, longer, synonyms
    affordable(terms, ...)  of these, what can be looked for in the time there is
    ranked(candidates, ...) exact id and name first, then text relevance, name likeness, and how well known it is
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice, pairwise

import msgspec

from mooring.catalog.words import NOISE, compact, stem, words

LIMIT, MOST = 20, 100
"""Results when nobody says how many, and at most."""
CANDIDATES = 200
"""Entries of the full-text index that are looked at closely."""
CORRECTED = 2
"""Words of a question that are taken for misspelt: looking for what was meant costs milliseconds."""
WORDS = 24
"""Words of a question that count; agents paste whole paragraphs."""
BEGINNINGS = 6
"""Words that a beginning may stand for."""

_STOP = frozenset(
    words(
        """
    a about above all also am an and any anything are as at be been but by can could do does down for from get give
    had has have help how i if in into is it its just let like make may me my need no of off on one or our out over
    own please re should so some something such than that the their them then there these they this those through to
    too up us use used uses using very want was way we were what when where which while who why will with without
    would you your tool tools
    """
    )
)
"""Words that say nothing about what somebody looks for."""


COLUMNS = ("names", "labels", "description", "tools")
"""Of the full-text index, in the order in which a match tells more."""
HITS = 1500
"""Matches of all terms together that the index may go through: what a question may cost, about 3 us each."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody looks for. Within a list any may match; all lists must."""

    query: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    official_only: bool = False
    featured_only: bool = False
    limit: int = LIMIT

    @property
    def filtered(self) -> bool:
        """Whether some entries cannot be an answer, whatever they say."""
        return bool(self.categories or self.tags or self.sources or self.official_only or self.featured_only)


class Language(msgspec.Struct, frozen=True):
    """What is known about the words of a question."""

    known: Set[str] = frozenset()
    """Those that some entry is called by; of ``joined`` too."""
    meant: Mapping[str, Sequence[tuple[str, float]]] = {}
    """For each that is misspelt what it may stand for, with the nearness."""
    longer: Mapping[str, Sequence[str]] = {}
    """For each the words that begin with it and go on."""
    synonyms: Mapping[str, Sequence[str]] = {}


class Term(msgspec.Struct, frozen=True, array_like=True):
    """One way to say one word of the question."""

    concept: int
    """Which word."""
    weight: float
    stem: str
    columns: tuple[str, ...] = COLUMNS
    """Where it counts."""

    @property
    def match(self) -> str:
        """The full-text expression."""
        return f'{{{" ".join(self.columns)}}} : "{self.stem}"'


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that may be an answer, with what ranking looks at."""

    key: int
    id: str
    source: str
    compact: str
    names: str
    official: bool
    featured: bool
    popularity: float
    scores: dict[int, float] = {}
    """Concept to full-text relevance, larger is better."""


def parsed(query: str) -> list[str]:
    """The words of a question that mean something; all of them when none does."""
    found = list(dict.fromkeys(words(query)))
    telling = [word for word in found if word not in _STOP and word not in NOISE]
    return (telling or found)[:WORDS]


def joined(asked: Sequence[str]) -> list[str]:
    """Each two neighbours in one word."""
    return [one + two for one, two in pairwise(asked)]


def misspelt(asked: Iterable[str], known: Set[str], rare: Callable[[str], bool]) -> list[str]:
    """The words that are taken for misspelt. ``rare``: hardly any entry has this word; somebody may have made the same
    mistake before."""
    return list(islice((word for word in asked if word not in known and rare(word)), CORRECTED))


def terms(asked: Sequence[str], language: Language) -> list[Term]:
    """What to look for."""
    found: list[Term] = []
    for number, word in enumerate(asked):
        found.append(Term(number, 1.0, stem(word)))
        for other, nearness in language.meant.get(word, ()):
            found.append(Term(number, 0.9 * nearness**2, stem(other), ("names",)))
            found.append(Term(number, 0.6 * nearness**2, stem(other)))
        if len(word) > 2:
            found += (Term(number, 0.6, stem(other), ("names",)) for other in language.longer.get(word, ()))
        found += (Term(number, 0.45, stem(other)) for other in language.synonyms.get(word, ()))
    for number, word in enumerate(joined(asked), len(asked)):
        if word in language.known:
            found.append(Term(number, 1.0, stem(word), ("names",)))
    return found


def affordable(terms: Iterable[Term], frequencies: Mapping[tuple[str, str], int], hits: int = HITS) -> list[Term]:
    """The terms that tell most, as many as ``hits`` allows; a common one may still count where it tells more.

    ``frequencies``: how many entries have a stem, by stem and column."""

    def cost(term: Term) -> int:
        return sum(frequencies.get((term.stem, column), 0) for column in term.columns)

    left = hits
    kept: list[Term] = []
    worth = ((-term.weight / math.log(2 + cost(term)), number, term) for number, term in enumerate(terms))
    for *_, wanted in sorted(worth, key=lambda found: found[:2]):
        for width in range(len(wanted.columns), 0, -1):
            term = msgspec.structs.replace(wanted, columns=wanted.columns[:width])
            if 0 < (matches := cost(term)) <= left:
                kept.append(term)
                left -= matches
                break
    return kept


def ranked(question: str, asked: Sequence[str], candidates: Iterable[Candidate]) -> list[Candidate]:
    """Best first; of entries with one id only the best copy. ``candidates`` of equal id: the first is kept."""
    kept = {candidate.id: candidate for candidate in reversed(list(candidates))}
    whole, id = compact(question), question.strip().lower()
    joined = "".join(asked)
    marks = {key: _mark(candidate, id, whole, joined, asked) for key, candidate in kept.items()}
    return sorted(kept.values(), key=lambda candidate: (*(-part for part in marks[candidate.id]), candidate.id))


def _mark(candidate: Candidate, id: str, whole: str, joined: str, asked: Sequence[str]) -> tuple[int, float]:
    """Exactness, then relevance; larger is better."""
    exact = 0
    if candidate.id == id:
        exact = 3
    elif candidate.compact in (whole, joined) and candidate.compact:
        exact = 2
    elif joined and joined in candidate.names.split():
        exact = 1
    covered = sum(1 for concept in candidate.scores if concept < len(asked)) / max(1, len(asked))
    text = sum(candidate.scores.values())
    names = candidate.names.split()
    named = sum(1 for word in asked if word in names) / max(1, len(set(names)))
    return exact, text * (0.4 + 0.6 * covered) * (1 + 0.25 * named) * (1 + _standing(candidate))


def _standing(candidate: Candidate) -> float:
    """How well known it is: 0 to about 0.5."""
    return 0.35 * candidate.popularity / 100 + 0.05 * candidate.official + 0.1 * candidate.featured


def synonyms(word: str, groups: Iterable[Sequence[str]]) -> list[str]:
    """The words that mean about the same as this one, from groups of them."""
    return list(dict.fromkeys(other for group in groups if word in group for other in group if other != word))


def by_standing(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The order for an empty question."""
    kept = {candidate.id: candidate for candidate in reversed(list(candidates))}
    return sorted(kept.values(), key=lambda candidate: (-_standing(candidate), candidate.id))
