"""The catalog as it is kept: entries of all sources in the store, and the way to find one among them.

Made by ``serve.catalog`` when somebody asks for the first time. Never talks to a source: that is ``catalog.refresh``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mooring.catalog import search, spelling
from mooring.catalog.entry import Entry
from mooring.catalog.search import Candidate, Question
from mooring.catalog.words import compact, indexed, stem
from mooring.errors import ConfigError
from mooring.store.base import Row, Store

_log = logging.getLogger(__name__)

BATCH = 250
"""Entries written in one transaction: a search waits for one of them at most."""
RARE = 2000
"""A word that fewer than one in so many entries has may be a misspelling, even if somebody made it before."""


class Kept(msgspec.Struct, frozen=True):
    """An entry with what the catalog knows about it. Times are epoch seconds."""

    entry: Entry
    first_seen: float
    changed_at: float = 0.0
    gone_at: float | None = None
    """When its source stopped having it."""


class Labels(msgspec.Struct, frozen=True):
    """What filters can ask for."""

    categories: tuple[str, ...]
    tags: tuple[str, ...]


class _Learnt(msgspec.Struct):
    """What was read for searching, until the catalog changes."""

    entries: int
    """How many there are."""
    words: dict[int, list[str]] = {}
    """Those of names and labels, by length, in the order of the alphabet; only lengths that a misspelling needed."""
    frequencies: dict[tuple[str, str], int] = {}
    """How many entries have a stem, by stem and column."""
    counted: set[str] = set()
    """Stems that were looked up."""


class Shelf:
    """Entries in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._synonyms: list[list[str]] = []
        self._learnt: _Learnt | None = None
        self._changes = 0

    async def put(self, source: str, entries: Sequence[Entry], run: int, now: float) -> None:
        """Keep these entries of a source. ``run`` numbers the listing they came in, see ``sweep``."""
        for start in range(0, len(entries), BATCH):
            rows = await asyncio.to_thread(_rows, entries[start : start + BATCH])
            await self._store.run("catalog_put", entries=_json(rows), source=source, now=now, **{"pass": run})
        self._changed()

    async def gone(self, source: str, ids: Sequence[str], now: float) -> None:
        """A source no longer has these."""
        await self._store.run("catalog_gone", source=source, ids=_json(ids), now=now)
        self._changed()

    async def sweep(self, source: str, run: int, now: float) -> None:
        """What a complete listing did not name is gone."""
        await self._store.run("catalog_sweep", source=source, now=now, **{"pass": run})
        self._changed()

    async def forget(self, source: str, now: float) -> None:
        """A source is configured no more."""
        await self._store.run("catalog_forget", source=source, now=now)
        self._changed()

    async def counts(self, since: float = 0.0) -> dict[str, tuple[int, int, int, int]]:
        """Source to how many entries it has, and how many came, changed and went since a time."""
        rows = await self._store.read("catalog_counts", since=since)
        return {row[0]: (row[1], row[2], row[3], row[4]) for row in rows}

    async def labels(self) -> Labels:
        """All categories and tags there are, in lower case."""
        rows = await self._store.read("catalog_known")
        return Labels(*(tuple(label for kind, label in rows if kind == wanted) for wanted in ("category", "tag")))

    async def copies(self, id: str) -> list[Kept]:
        """The entry of an id, as each source that has it says it; also when it is gone."""
        rows = await self._store.read("catalog_entry", id=id.strip().lower())
        decoded = [(await self._decoded(key, text), times) for key, text, *times in rows]
        return [Kept(entry, *times) for entry, times in decoded if entry is not None]

    async def find(self, question: Question, order: Sequence[str]) -> list[Kept]:
        """The entries that answer a question, best first. ``order``: the sources that count, the one whose
        copy of an entry is taken first. Raises ConfigError for a filter that nothing can pass."""
        await self._check(question, order)
        asked = search.parsed(question.query)
        candidates = await self._candidates(question, asked)
        ranks = {source: rank for rank, source in enumerate(order)}
        candidates.sort(key=lambda candidate: (ranks.get(candidate.source, len(ranks)), candidate.key))
        found = search.ranked(question.query, asked, candidates) if asked else search.by_standing(candidates)
        return await self._entries(found[: question.limit])

    async def _candidates(self, question: Question, asked: list[str]) -> list[Candidate]:
        filters = {
            "sources": _json(question.sources),
            "categories": _json([category.lower() for category in question.categories]),
            "tags": _json([tag.lower() for tag in question.tags]),
            "official": int(question.official_only),
            "featured": int(question.featured_only),
            "most": search.CANDIDATES,
        }
        if not asked:
            return _gathered(await self._store.read("catalog_all", **filters))
        wanted, learnt = await self._terms(asked)

        async def matching(hits: int) -> list[Candidate]:
            affordable = search.affordable(wanted, learnt.frequencies, hits)
            rows = await self._store.read(
                "catalog_find",
                terms=_json([(term.concept, term.weight, term.match) for term in affordable]),
                id=question.query.strip().lower(),
                compact=compact(question.query),
                joined="".join(asked),
                filtered=int(question.filtered),
                **filters,
            )
            return _gathered(rows)

        found = await matching(search.HITS)
        if question.filtered and len(found) < question.limit:
            # What the filter lets through may have only words that are too common to be looked for in all entries.
            return await matching(sys.maxsize)
        return found

    async def _terms(self, asked: list[str]) -> tuple[list[search.Term], _Learnt]:
        learnt = await self._learn()
        await self._count(learnt, map(stem, asked))
        rare = learnt.entries / RARE
        own = {
            word: sum(learnt.frequencies.get((stem(word), column), 0) for column in search.COLUMNS) for word in asked
        }
        rows = await self._store.read(
            "catalog_known_words", words=_json([*asked, *search.joined(asked)]), following=search.BEGINNINGS
        )
        known = {word for word, there, _ in rows if there}
        misspelt = search.misspelt(asked, known, lambda word: own[word] <= rare)
        language = search.Language(
            known=known,
            meant=await self._meant(learnt, misspelt) if misspelt else {},
            longer={word: _beginning_with(word, following) for word, _, following in rows},
            synonyms={word: search.synonyms(word, self._synonyms) for word in asked},
        )
        wanted = search.terms(asked, language)
        await self._count(learnt, (term.stem for term in wanted))
        return wanted, learnt

    async def _meant(self, learnt: _Learnt, misspelt: Sequence[str]) -> dict[str, list[tuple[str, float]]]:
        """What misspelt words may stand for."""
        needed = {length for word in misspelt for length in spelling.lengths(word)} - learnt.words.keys()
        if needed:
            loaded = asyncio.get_running_loop().run_in_executor(None, spelling.load)
            rows = await self._store.read("catalog_words_of_lengths", lengths=_json(sorted(needed)))
            learnt.words.update({length: _split(text) for length, text in rows})
            await loaded
        return {word: spelling.near(word, learnt.words) for word in misspelt}

    async def _count(self, learnt: _Learnt, stems: Iterable[str]) -> None:
        """Learn how many entries have these stems."""
        new = sorted(set(stems) - learnt.counted)
        if new:
            rows = await self._store.read("catalog_frequencies", stems=_json(new))
            learnt.frequencies.update({(stem, column): count for stem, column, count in rows})
            learnt.counted.update(new)

    async def _learn(self) -> _Learnt:
        if not self._synonyms:
            self._synonyms = _synonyms()
        if self._learnt is None:
            changes = self._changes
            ((entries,),) = await self._store.read("catalog_size")
            learnt = _Learnt(entries)
            if changes != self._changes:
                return learnt
            self._learnt = learnt
        return self._learnt

    def _changed(self) -> None:
        self._changes += 1
        self._learnt = None

    async def _entries(self, found: Iterable[Candidate]) -> list[Kept]:
        keys = [candidate.key for candidate in found]
        rows = await self._store.read("catalog_entries", keys=_json(keys))
        decoded = {key: (await self._decoded(key, text), first_seen) for key, text, first_seen in rows}
        there = (decoded[key] for key in keys if key in decoded)
        return [Kept(entry, first_seen) for entry, first_seen in there if entry is not None]

    async def _decoded(self, key: int, text: str) -> Entry | None:
        """An entry as it was kept. One that is damaged, or of a Mooring with other entries, is not there until its
        source was read again, which is due then."""
        try:
            return msgspec.json.decode(text, type=Entry)
        except msgspec.MsgspecError as error:
            _log.warning("an entry of the catalog is damaged and left out until the next refresh: %s", error)
            await self._store.run("catalog_damaged", key=key)
            return None

    async def _check(self, question: Question, order: Sequence[str]) -> None:
        _only_known("source", question.sources, order)
        if question.categories or question.tags:
            labels = await self.labels()
            _only_known("category", question.categories, labels.categories)
            _only_known("tag", question.tags, labels.tags)
        if not 1 <= question.limit <= search.MOST:
            raise ConfigError(f"limit is {question.limit}; it needs to be from 1 to {search.MOST}.")


def _only_known(what: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    there = sorted(known)
    for name in wanted:
        if name.lower() not in there:
            from difflib import get_close_matches  # errors only

            close = get_close_matches(name.lower(), there, 3)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            listed = ", ".join(there[:40]) + (f" and {len(there) - 40} more" if len(there) > 40 else "")
            raise ConfigError(f'There is no {what} "{name}".{meant} There are: {listed or "none"}.')


def _beginning_with(word: str, following: str | None) -> list[str]:
    return [other for other in _split(following) if other.startswith(word)]


def _split(text: str | None) -> list[str]:
    """The words of a column that is NULL where there are none."""
    return text.split(" ") if text else []


def _synonyms() -> list[list[str]]:
    lines = Path(__file__).with_name("synonyms.txt").read_text("utf-8").splitlines()
    return [line.split() for line in lines if not line.startswith("#")]


def _rows(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [_row(entry) for entry in entries]


def _row(entry: Entry) -> dict[str, Any]:
    text = msgspec.json.encode(entry)
    return {
        "id": entry.id,
        "digest": hashlib.sha256(text).hexdigest()[:32],
        "entry": text.decode(),
        "official": int(entry.official),
        "featured": int(entry.featured),
        "popularity": entry.popularity,
        "categories": sorted({category.lower() for category in entry.categories}),
        "tags": sorted({tag.lower() for tag in entry.tags}),
        **msgspec.to_builtins(indexed(entry)),
    }


def _gathered(rows: Iterable[Row]) -> list[Candidate]:
    """One candidate an entry, of one row a concept."""
    found: dict[int, Candidate] = {}
    for key, id, source, name, names, official, featured, popularity, concept, score in rows:
        candidate = found.get(key)
        if candidate is None:
            candidate = found[key] = Candidate(
                key=key,
                id=id,
                source=source,
                compact=name,
                names=names,
                official=bool(official),
                featured=bool(featured),
                popularity=popularity,
                scores={},
            )
        if concept is not None:
            candidate.scores[concept] = score
    return list(found.values())


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
