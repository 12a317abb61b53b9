"""Takes secret values out of text before anybody sees it. Pure.

``config.secrets`` registers every value it fetches; stderr tails, errors and logs pass through the one ``Redactor`` of
the process. Never forgets a rotated value early: an old secret is a secret still.
"""

from __future__ import annotations

import re
from itertools import count

MASK = "****"
MIN_LENGTH = 4
"""Characters. Masking every "1" or "on" would shred the text and give the value away all the same."""
MAX_FORMS = 8192
"""Registered texts that are kept; beyond it the oldest go (a command may give a new token each hour, for months)."""
MIN_BEGUN = 8
"""Characters of a value at the end of a line that are taken for its beginning."""

_CREDENTIALS = r"(?i)\b(bearer|basic(?= +[\w+/=]{16})) +[\w.~+/=-]+"
"""``Basic`` only before what may be base64 of a name and a password: it is an ordinary word as well."""
_KEYS = r"mrg_[\w-]{8,}"
"""Compiled for the first line, which comes after the boot."""


class Redactor:
    """Replaces what it was told by ``MASK``; credentials in an Authorization header and Mooring's own keys always."""

    def __init__(self, shortest: int = MIN_LENGTH) -> None:
        """``shortest``: length below which a value is no secret; less only where one is known to be near."""
        self._forms: dict[str, int] = {}
        """Text to the turn in which it was last registered. Secrets are fetched in some threads while others mask what
        they write: each step leaves all of them known."""
        self._turns = count(1)
        self._shortest = shortest

    def add(self, value: str) -> None:
        """Register a secret value. It is found as it is, escaped as in JSON, percent-encoded, and line by line. From
        any thread."""
        for form in _forms(value):
            if len(form) >= self._shortest:
                self._forms[form] = next(self._turns)
        if len(self._forms) > MAX_FORMS:
            turns = self._forms.copy()
            for form in sorted(turns, key=turns.__getitem__)[: max(0, len(turns) - MAX_FORMS)]:
                turn = self._forms.pop(form, 0)
                if turn > turns[form]:  # registered again meanwhile
                    self._forms.setdefault(form, turn)

    def __call__(self, text: str) -> str:
        """``text`` without secrets; from any thread."""
        text = _mask(text, _found(text, tuple(self._forms)))
        text = re.sub(_CREDENTIALS, rf"\1 {MASK}", text)
        return re.sub(_KEYS, "mrg_" + MASK, text)


def _forms(value: str) -> set[str]:
    """How a value may appear in text."""
    from json.encoder import encode_basestring, encode_basestring_ascii  # a daemon without secrets never needs it

    pieces = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    return {
        form
        for piece in pieces
        for form in (piece, encode_basestring(piece)[1:-1], encode_basestring_ascii(piece)[1:-1], _percent(piece))
    }


def _percent(text: str) -> str:
    from urllib.parse import quote  # a daemon without secrets never needs it

    return quote(text, safe="", errors="replace")


def _found(text: str, forms: tuple[str, ...]) -> list[tuple[int, int]]:
    """Where the forms are, overlapping ones included, so that no tail of a value survives the mask of another."""
    ends = _line_ends(text)
    spans: list[tuple[int, int]] = []
    for form in forms:
        start = text.find(form)
        while start >= 0:
            spans.append((start, start + len(form)))
            start = text.find(form, start + 1)
        spans += (span for end in ends if (span := _begun(text, end, form)))
    return sorted(spans)


def _begun(text: str, end: int, form: str) -> tuple[int, int] | None:
    """Where ``form`` begins when its rest was cut off at ``end``, the end of a line: long lines are cut before they
    come here, and a line may be looked at while it is being written."""
    last = text[max(0, end - MIN_BEGUN) : end]
    at = form.find(last) if len(last) == MIN_BEGUN else -1
    while at >= 0 and (length := at + MIN_BEGUN) <= end:
        if text.startswith(form[:length], end - length):
            return end - length, end
        at = form.find(last, at + 1)
    return None


def _line_ends(text: str) -> list[int]:
    """Where lines end; half a character that was cut there does not count."""
    ends: list[int] = []
    start = 0
    for line in text.split("\n"):
        ends.append(start + len(line.rstrip("\ufffd")))
        start += len(line) + 1
    return ends


def _mask(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace spans, sorted by start, by one mask for each run that overlaps or touches."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if start > done or not parts:
            parts += (text[done:start], MASK)
        done = max(done, end)
    return "".join((*parts, text[done:]))
