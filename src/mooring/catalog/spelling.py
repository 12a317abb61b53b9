"""What a misspelt word was probably meant to be: the nearest words that some entry is called by. Pure.

Uses rapidfuzz, which takes 5 ms to import: ``catalog.shelf`` has it loaded while it reads the words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

SUGGESTIONS = 4
"""Words that one misspelling may stand for."""


def load() -> None:
    """Import what ``near`` needs; in any thread."""
    import_module("rapidfuzz")


def lengths(word: str) -> range:
    """How long the words may be that it stands for; none for what is too short to be recognised in a misspelling."""
    if len(word) < 3 or word.isdigit():
        return range(0)
    allowed = _allowed(word)
    return range(len(word) - allowed, len(word) + allowed + 1)


def near(word: str, words: Mapping[int, Sequence[str]]) -> list[tuple[str, float]]:
    """The nearest words with their nearness, below 1; best first. Distance counts insertions, deletions, replacements
    and swapped neighbours. ``words``: all there are, by length, in the order of the alphabet; those of other lengths
    than ``lengths`` may be missing."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    allowed = _allowed(word)
    found: list[tuple[str, float]] = []
    for length in lengths(word):
        close = process.extract(
            word, words.get(length, ()), scorer=OSA.distance, score_cutoff=allowed, limit=8 * SUGGESTIONS
        )
        found += ((other, _nearness(word, other, int(distance))) for other, distance, _ in close if other != word)
    return sorted(found, key=lambda found: (-found[1], found[0]))[:SUGGESTIONS]


def _allowed(word: str) -> int:
    """Mistakes that it may have."""
    return 1 if len(word) < 5 else 2 if len(word) < 9 else 3


def _nearness(word: str, other: str, distance: int) -> float:
    """Misspellings seldom touch the first letter, and often keep all letters."""
    nearness = 1 - distance / max(len(word), len(other))
    if word[0] != other[0]:
        nearness -= 0.1
    if sorted(word) == sorted(other):
        nearness += 0.1
    return min(nearness, 0.99)
