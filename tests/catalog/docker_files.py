"""Made-up entries in the form of Docker's catalog, in all the shapes that are found there."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

JSON = dict[str, Any]


def documents(count: int = 330) -> Iterator[tuple[str, JSON, list[JSON] | None]]:
    """Folder, ``server.yaml``, ``tools.json``; every shape in turn."""
    for number in range(count):
        name = f"Made-{number}" if number % 10 == 0 else f"made-{number}"
        shape = _SHAPES[number % len(_SHAPES)](name)
        about = {"title": f"Made {number}", "description": f"Does thing {number}.", "icon": "https://x.example/i.png"}
        common = {"name": name, "meta": {"category": "devops", "tags": ["made", "tests"]}, "about": about}
        tools = [{"name": f"do_{number}", "description": "Does it", "arguments": [{"name": "a", "type": "string"}]}]
        yield f"made-{number}", common | shape, (tools if number % 4 == 0 else [] if number % 4 == 1 else None)


def _image(name: str) -> JSON:
    source = {"project": f"https://github.com/made/{name}", "commit": "0" * 40, "branch": "main", "directory": "src"}
    return {"image": f"mcp/{name.lower()}", "type": "server", "source": source}


_SHAPES = [
    _image,
    lambda name: {**_image(name), "image": f"ghcr.io/made/{name.lower()}:1.2", "longLived": True},
    lambda name: {
        **_image(name),
        "config": {
            "description": "Configure it",
            "secrets": [
                {"name": f"{name}.api_key", "env": "API_KEY", "example": "abc"},
                {"name": f"{name}.other", "env": "OTHER", "required": False, "description": "See there"},
            ],
            "env": [
                {"name": "HOST", "example": "localhost", "value": "{{" + name + ".host}}"},
                {"name": "COUNT", "example": 5, "value": "{{" + name + ".count}}"},
                {"name": "QUIET", "example": False, "value": "true"},
            ],
            "parameters": {
                "type": "object",
                "properties": {
                    "host": {"type": "string", "description": "Where", "default": "localhost"},
                    "count": {"type": "integer", "default": 0},
                    "mode": {"type": "string", "enum": ["a", "b"]},
                },
                "required": ["host"],
                "anyOf": [{"required": ["host"]}, {"required": ["count"]}],
            },
        },
    },
    lambda name: {
        **_image(name),
        "run": {
            "command": ["--path", "{{" + name + ".paths|volume-target|into}}"],
            "volumes": ["{{" + name + ".paths|volume|into}}", "cache:/cache"],
            "disableNetwork": True,
            "user": "{{" + name + ".user}}",
            "env": {"MODE": "stdio"},
        },
        "config": {
            "parameters": {
                "type": "object",
                "properties": {
                    "paths": {"type": "array", "items": {"type": "string"}, "default": ["/Users/somebody"]},
                    "inner": {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
                },
            }
        },
    },
    lambda name: {**_image(name), "run": {"allowHosts": ["a.example:443"], "ports": ["80:80"]}, "requirement": "x"},
    lambda name: {
        "type": "remote",
        "dynamic": {"tools": True},
        "remote": {
            "transport_type": "streamable-http",
            "url": f"https://{name}.example/mcp",
            "headers": {"Authorization": "Bearer ${TOKEN}", "X-Plain": "yes"},
        },
        "config": {"secrets": [{"name": f"{name}.token", "env": "TOKEN", "example": "<TOKEN>"}]},
    },
    lambda name: {
        "type": "remote",
        "remote": {"transport_type": "sse", "url": f"https://{name}.example/sse"},
        "oauth": [{"provider": name, "secret": f"{name}.token", "env": "TOKEN"}],
        "config": None,
    },
    lambda name: {
        "type": "poci",
        "tools": [
            {
                "name": "run",
                "description": "Run it",
                "parameters": {"type": "object", "properties": {"args": {"type": "array"}}, "required": ["args"]},
                "container": {"image": "made/once", "command": ["{{args|into}}"], "volumes": ["/a:/a"]},
            }
        ],
    },
]


def checkout(folder: Path, count: int = 330) -> Path:
    """Write a checkout."""
    for name, server, tools in documents(count):
        place = folder / "servers" / name
        place.mkdir(parents=True)
        (place / "server.yaml").write_text(yaml.safe_dump(server, sort_keys=False))
        if tools is not None:
            (place / "tools.json").write_text(json.dumps(tools))
    return folder


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """What an archive of a checkout holds."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield f"mcp-registry-main/{file.relative_to(folder)}", file.read_bytes()


def tar(folder: Path) -> bytes:
    """A checkout as the archive that code hosts make."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as archive:
        for name, content in files(folder):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return target.getvalue()


def zipped(folder: Path) -> bytes:
    """The same as zip."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files(folder):
            archive.writestr(name, content)
    return target.getvalue()
