"""JSON as clients keep it: with comments and trailing commas. Pure; called by ``config.importer``."""

from __future__ import annotations

import json
import re
from typing import Any

_COMMENT = r"//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/"
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"'  # a string, left alone
    rf"|{_COMMENT}"
    rf"|,(?=(?:\s|{_COMMENT})*[\]}}])",  # a comma before the end of a list or table
    re.DOTALL,
)


def loads(text: str) -> Any:
    """The value of ``text``. Raises ValueError with line and column."""
    return json.loads(_TOKEN.sub(_keep_strings, text.removeprefix("\ufeff")))


def _keep_strings(token: re.Match[str]) -> str:
    if token[0].startswith('"'):
        return token[0]
    return "".join(char if char == "\n" else " " for char in token[0])
