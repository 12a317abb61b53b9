"""What the echo server offers besides tools: prompts, resources, templates, completion; and paging. Standard library
only."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from mooring.testing.call import Call
from mooring.testing.peer import INVALID_PARAMS, JSON, RpcError

TEXT = "test://static-text"
BINARY = "test://static-binary"
WATCHED = "test://watched-resource"
HIDDEN = "test://hidden"
"""In no list; the tool ``link`` gives its name away."""
TEMPLATE = "test://template/{id}/data"
PIXEL = bytes.fromhex("89504e470d0a1a0a0000000d49484452")

NAMES = ("alice", "albert", "bob", "carol")
STYLES = ("formal", "friendly")
RESOURCE_NOT_FOUND = -32002


class Catalogue:
    """The lists, which the tool ``change`` may lengthen."""

    def __init__(self, tools: list[JSON]) -> None:
        self.lists: dict[str, list[JSON]] = {
            "tools": tools,
            "prompts": [
                {"name": "simple", "description": "A prompt without arguments"},
                {
                    "name": "greeting",
                    "description": "Greets somebody",
                    "arguments": [{"name": "name", "required": True}, {"name": "style"}],
                    "x-vendor": {"kept": True},
                },
            ],
            "resources": [
                {"uri": TEXT, "name": "static text", "mimeType": "text/plain", "x-vendor": {"kept": True}},
                {"uri": BINARY, "name": "static binary", "mimeType": "image/png"},
                {"uri": WATCHED, "name": "watched", "mimeType": "text/plain"},
            ],
            "resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "template", "mimeType": "application/json"}],
        }

    def add(self, kind: str) -> str:
        """Put one more item on a list; returns its name."""
        items = self.lists[kind]
        name = f"added_{len(items)}"
        shape: dict[str, JSON] = {
            "tools": {"name": name, "description": "Added at run time", "inputSchema": {"type": "object"}},
            "prompts": {"name": name},
            "resources": {"uri": f"test://{name}", "name": name},
        }
        items.append(shape[kind])
        return name


def _page(member: str) -> Callable[[Call], JSON]:
    def page(call: Call) -> JSON:
        flags, items = call.server.flags, call.server.catalogue.lists[member]
        cursor = call.params.get("cursor", "0")
        if flags.repeat_cursor:
            return {member: items, "nextCursor": "again"}
        if not (isinstance(cursor, str) and cursor.isdigit() and int(cursor) <= len(items)):
            raise RpcError(INVALID_PARAMS, "no such cursor")
        start = int(cursor)
        end = start + flags.page_size if flags.page_size else len(items)
        result: JSON = {member: items[start:end]}
        return {**result, "nextCursor": str(end)} if end < len(items) else result

    return page


def _read(call: Call) -> JSON:
    uri = call.params.get("uri", "")
    return {"contents": [{"uri": uri, **_content(call, uri)}]}


def _content(call: Call, uri: Any) -> JSON:
    if uri == TEXT:
        return {"mimeType": "text/plain", "text": "a static text", "x-vendor": {"kept": True}}
    if uri == BINARY:
        return {"mimeType": "image/png", "blob": base64.b64encode(PIXEL).decode()}
    if uri == WATCHED:
        return {"mimeType": "text/plain", "text": f"version {call.server.watched_version}"}
    if uri == HIDDEN:
        return {"mimeType": "text/plain", "text": "found"}
    before, after = TEMPLATE.split("{id}")
    if str(uri).startswith(before) and str(uri).endswith(after):
        return {"mimeType": "application/json", "text": f'{{"id":"{uri[len(before) : -len(after)]}"}}'}
    if uri in [item["uri"] for item in call.server.catalogue.lists["resources"]]:
        return {"mimeType": "text/plain", "text": "added"}
    code = RESOURCE_NOT_FOUND if call.era == "legacy" else INVALID_PARAMS
    raise RpcError(code, f"no resource {uri}", {"uri": uri})


def _get_prompt(call: Call) -> JSON:
    name, arguments = call.params.get("name"), call.params.get("arguments", {})
    if name not in [item["name"] for item in call.server.catalogue.lists["prompts"]]:
        raise RpcError(INVALID_PARAMS, f"no prompt {name}")
    if name == "greeting" and "name" not in arguments:
        raise RpcError(INVALID_PARAMS, "greeting needs the argument name")
    text = f"Greet {arguments['name']} ({arguments.get('style', 'plain')})" if name == "greeting" else f"prompt {name}"
    return {"description": name, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}


def _complete(call: Call) -> JSON:
    argument = call.params.get("argument", {})
    pool = {"name": NAMES, "style": STYLES, "id": ("1", "2", "13")}.get(argument.get("name"), ())
    values = [value for value in pool if value.startswith(argument.get("value", ""))]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


METHODS: dict[str, Callable[[Call], JSON]] = {
    "tools/list": _page("tools"),
    "prompts/list": _page("prompts"),
    "resources/list": _page("resources"),
    "resources/templates/list": _page("resourceTemplates"),
    "resources/read": _read,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
