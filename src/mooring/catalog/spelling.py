"""What a misspelt word was probably meant to be: the nearest words that some entry is called by. Pure.

Built from the words of the catalog when somebody searches for the first time, and again when the catalog changed.
Uses rapidfuzz, which is imported with this module: not at boot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable

from rapidfuzz import process
from rapidfuzz.distance import OSA

SUGGESTIONS = 4
"""Words that one misspelling may stand for."""


BEGINNINGS = 6
"""Words that a beginning may stand for."""


class Vocabulary:
    """All words of names and labels. Equal words give equal answers, in whatever order they came."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = sorted(word for word in set(words) if len(word) > 1)
        self._known = frozenset(self._words)
        self._of_length: dict[int, list[str]] = defaultdict(list)
        for word in self._words:
            self._of_length[len(word)].append(word)

    def __contains__(self, word: object) -> bool:
        return word in self._known

    def near(self, word: str) -> list[tuple[str, float]]:
        """The nearest words with their nearness, below 1; best first; none for what is too short to be recognised in
        a misspelling. Distance counts insertions, deletions, replacements and swapped neighbours."""
        if len(word) < 3 or word.isdigit():
            return []
        allowed = 1 if len(word) < 5 else 2 if len(word) < 9 else 3
        found: list[tuple[str, float]] = []
        for length in range(len(word) - allowed, len(word) + allowed + 1):
            near = process.extract(
                word, self._of_length.get(length, ()), scorer=OSA.distance, score_cutoff=allowed, limit=8 * SUGGESTIONS
            )
            found += ((other, _nearness(word, other, int(distance))) for other, distance, _ in near if other != word)
        return sorted(found, key=lambda found: (-found[1], found[0]))[:SUGGESTIONS]

    def beginning(self, word: str) -> list[str]:
        """The first words that begin with this one and go on."""
        start = bisect_right(self._words, word)
        following = self._words[start : start + BEGINNINGS]
        return [other for other in following if other.startswith(word)]


def _nearness(word: str, other: str, distance: int) -> float:
    """Misspellings seldom touch the first letter, and often keep all letters."""
    nearness = 1 - distance / max(len(word), len(other))
    if word[0] != other[0]:
        nearness -= 0.1
    if sorted(word) == sorted(other):
        nearness += 0.1
    return min(nearness, 0.99)
