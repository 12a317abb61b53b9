"""Takes secret values out of text before anybody sees it. Pure.

``config.secrets`` registers every value it fetches; stderr tails, errors and logs pass through the one ``Redactor`` of
the process. Never forgets a rotated value early: an old secret is a secret still.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring, encode_basestring_ascii

MASK = "****"
MIN_LENGTH = 4
"""Characters. Masking every "1" or "on" would shred the text and give the value away all the same."""
MAX_FORMS = 8192
"""Registered texts that are kept; beyond it the oldest go (a command may give a new token each hour, for months)."""

_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic(?= +[\w+/=]{16})) +[\w.~+/=-]+")
"""``Basic`` only before what may be base64 of a name and a password: it is an ordinary word as well."""
_KEYS = re.compile(r"mrg_[\w-]{8,}")


class Redactor:
    """Replaces what it was told by ``MASK``; credentials in an Authorization header and Mooring's own keys always."""

    def __init__(self) -> None:
        self._forms: dict[str, None] = {}

    def add(self, value: str) -> None:
        """Register a secret value. It is found as it is, escaped as in JSON, percent-encoded, and line by line."""
        for form in _forms(value):
            self._forms.pop(form, None)
            self._forms[form] = None
        while len(self._forms) > MAX_FORMS:
            del self._forms[next(iter(self._forms))]

    def __call__(self, text: str) -> str:
        """``text`` without secrets."""
        text = _mask(text, _found(text, self._forms))
        text = _CREDENTIALS.sub(rf"\1 {MASK}", text)
        return _KEYS.sub("mrg_" + MASK, text)


def _forms(value: str) -> set[str]:
    """How a value may appear in text."""
    pieces = {value, value.strip(), *(line.strip() for line in value.splitlines())}
    forms = {
        form
        for piece in pieces
        for form in (piece, encode_basestring(piece)[1:-1], encode_basestring_ascii(piece)[1:-1], _percent(piece))
    }
    return {form for form in forms if len(form) >= MIN_LENGTH}


def _percent(text: str) -> str:
    from urllib.parse import quote  # a daemon without secrets never needs it

    return quote(text, safe="", errors="replace")


def _found(text: str, forms: dict[str, None]) -> list[tuple[int, int]]:
    """Where the forms are, overlapping ones included, so that no tail of a value survives the mask of another."""
    spans: list[tuple[int, int]] = []
    for form in forms:
        start = text.find(form)
        while start >= 0:
            spans.append((start, start + len(form)))
            start = text.find(form, start + 1)
    return sorted(spans)


def _mask(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace spans, sorted by start, by one mask for each run that overlaps or touches."""
    parts: list[str] = []
    done = 0
    for start, end in spans:
        if start > done or not parts:
            parts += (text[done:start], MASK)
        done = max(done, end)
    return "".join((*parts, text[done:]))
