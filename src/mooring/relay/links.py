"""URIs that a server hands out in its answers, without listing them: they must be readable afterwards. Pure.

Used by ``relay.calls`` and ``relay.resources``. Only answers that can hold such a URI are decoded, and of these only
the members that matter.
"""

from __future__ import annotations

import msgspec

SCAN_LIMIT = 1 << 20
"""Bytes of a result that is searched; larger ones are passed on unread."""
_URI = b'"uri"'
_LINK, _RESOURCE = b'"resource_link"', b'"resource"'


class _Embedded(msgspec.Struct):
    uri: str = ""


class _Block(msgspec.Struct):
    type: str = ""
    uri: str = ""
    resource: _Embedded | None = None


class _Content(msgspec.Struct):
    content: list[_Block] = []


class _Contents(msgspec.Struct):
    contents: list[_Embedded] = []


def in_content(result: bytes) -> list[str]:
    """Those in the result of a tool: links, and resources that are part of it."""
    if len(result) > SCAN_LIMIT or not (_LINK in result or _RESOURCE in result):
        return []
    try:
        blocks = msgspec.json.decode(result, type=_Content).content
    except (msgspec.DecodeError, RecursionError):
        return []
    linked = [block.uri for block in blocks if block.type == "resource_link"]
    embedded = [block.resource.uri for block in blocks if block.resource is not None]
    return [uri for uri in linked + embedded if uri]


def in_contents(result: bytes) -> list[str]:
    """Those that the result of reading a resource is made of, if it is more than one: a folder, say."""
    if len(result) > SCAN_LIMIT or result.count(_URI) < 2:
        return []
    try:
        return [each.uri for each in msgspec.json.decode(result, type=_Contents).contents if each.uri]
    except (msgspec.DecodeError, RecursionError):
        return []
