"""Durations as people write them: ``"10m"``, ``"1h30m"``, or seconds. Pure; called by ``config.decode``."""

from __future__ import annotations

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 10 * 365 * 86400.0
"""Ten years: whoever wants more means 0 (never)."""


class Seconds(float):
    """A duration in seconds, read from a number or from text such as "10m"."""


class Limit(Seconds):
    """A duration in seconds that is more than 0."""


def decode(kind: type, written: object) -> Seconds:
    """msgspec's ``dec_hook`` for the two types above. Raises ValueError."""
    seconds = parse(written)
    if kind is Limit and not seconds:
        raise ValueError("a limit of 0 is never met; leave it out for the default")
    return kind(seconds)


def parse(written: object) -> Seconds:
    """The duration that was ``written``. Raises ValueError with what to write instead."""
    if isinstance(written, str):
        seconds = _total(written)
    elif isinstance(written, int | float) and not isinstance(written, bool):
        seconds = float(written) if abs(written) <= _LONGEST else None
    else:
        seconds = None
    if seconds is None or not 0 <= seconds <= _LONGEST:
        raise ValueError(f'{written!r} is not a duration; write seconds (90) or text such as "10m", "1h30m", "500ms"')
    return Seconds(seconds)


def _total(text: str) -> float | None:
    total, rest = 0.0, text.strip()
    while rest:
        digits = len(rest) - len(rest.lstrip("0123456789."))
        number, tail = rest[:digits], rest[digits:]
        letters = len(tail) - len(tail.lstrip("abcdefghijklmnopqrstuvwxyz"))
        unit, rest = tail[:letters], tail[letters:].lstrip()
        if unit not in _UNITS:
            return None
        try:
            total += float(number) * _UNITS[unit]
        except ValueError:
            return None
    return total if text.strip() else None
