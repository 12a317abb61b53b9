"""Resources, prompts and completions that the conformance suite asks for. Standard library only."""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from typing import Any

from mooring.testing.conformance.call import Call
from mooring.testing.conformance.schemas import elicit
from mooring.testing.peer import INVALID_PARAMS, JSON, RpcError

RESOURCE_NOT_FOUND = -32002
"""The legacy era's; the modern one has -32602."""
TEXT = "test://static-text"
BINARY = "test://static-binary"
WATCHED = "test://watched-resource"
TEMPLATE = "test://template/{id}/data"


def _png() -> bytes:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", binascii.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0\xff\0\0")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _wav() -> bytes:
    """A sound without samples."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8)
    return struct.pack("<4sI4s", b"RIFF", 4 + len(form) + 8, b"WAVE") + form + struct.pack("<4sI", b"data", 0)


PNG = base64.b64encode(_png()).decode()
IMAGE: JSON = {"type": "image", "data": PNG, "mimeType": "image/png"}
AUDIO: JSON = {"type": "audio", "data": base64.b64encode(_wav()).decode(), "mimeType": "audio/wav"}

RESOURCES: list[JSON] = [
    {"uri": TEXT, "name": "static-text", "description": "A static text", "mimeType": "text/plain"},
    {"uri": BINARY, "name": "static-binary", "description": "A static image", "mimeType": "image/png"},
    {"uri": WATCHED, "name": "watched-resource", "description": "Can be subscribed to", "mimeType": "text/plain"},
]
TEMPLATES: list[JSON] = [
    {"uriTemplate": TEMPLATE, "name": "template", "description": "By id", "mimeType": "application/json"}
]


def _prompt(name: str, description: str, *arguments: str) -> JSON:
    wanted: list[JSON] = [{"name": each, "description": each, "required": True} for each in arguments]
    return {"name": name, "description": description, **({"arguments": wanted} if wanted else {})}


PROMPTS: list[JSON] = [
    _prompt("test_simple_prompt", "A prompt without arguments"),
    _prompt("test_prompt_with_arguments", "A prompt with arguments", "arg1", "arg2"),
    _prompt("test_prompt_with_embedded_resource", "A prompt with a resource in it", "resourceUri"),
    _prompt("test_prompt_with_image", "A prompt with an image"),
    _prompt("test_input_required_result_prompt", "A prompt that asks the user first"),
]


async def read(call: Call) -> JSON:
    """Read a resource."""
    uri = call.params.get("uri")
    return {"contents": [{"uri": uri, **_contents(call, uri)}]}


def _contents(call: Call, uri: Any) -> JSON:
    match uri:
        case "test://static-text":
            return {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
        case "test://static-binary":
            return {"mimeType": "image/png", "blob": PNG}
        case "test://watched-resource":
            return {"mimeType": "text/plain", "text": "Watched resource content"}
        case _:
            before, after = TEMPLATE.split("{id}")
            if isinstance(uri, str) and uri.startswith(before) and uri.endswith(after):
                id = uri[len(before) : -len(after)]
                data = f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'
                return {"mimeType": "application/json", "text": data}
    code = RESOURCE_NOT_FOUND if call.era == "legacy" else INVALID_PARAMS
    raise RpcError(code, "Resource not found", {"uri": uri})


async def prompt(call: Call) -> JSON:
    """Get a prompt."""
    arguments = call.arguments
    match call.params.get("name"):
        case "test_simple_prompt":
            blocks = [_text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            blocks = [_text(f"Prompt with arguments: arg1='{arguments['arg1']}', arg2='{arguments['arg2']}'")]
        case "test_prompt_with_embedded_resource":
            inside = {"uri": arguments["resourceUri"], "mimeType": "text/plain", "text": "Embedded resource content"}
            blocks: list[JSON] = [{"type": "resource", "resource": inside}, _text("Please process this resource.")]
        case "test_prompt_with_image":
            blocks = [IMAGE, _text("Please analyze this image.")]
        case "test_input_required_result_prompt":
            question = elicit("What context should the prompt use?", {"context": {"type": "string"}}, "context")
            answers = await call.ask({"user_context": question})
            blocks = [_text(f"Context: {answers['user_context'].get('content', {}).get('context')}")]
        case name:
            raise RpcError(INVALID_PARAMS, f"no prompt {name}")
    return {"messages": [{"role": "user", "content": block} for block in blocks]}


def _text(value: str) -> JSON:
    return {"type": "text", "text": value}


async def complete(call: Call) -> JSON:
    """Complete an argument."""
    begun = str(call.params.get("argument", {}).get("value", ""))
    values = [word for word in ("paris", "park", "party", "test-one", "test-two") if word.startswith(begun)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}
