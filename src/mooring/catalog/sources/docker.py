"""Docker's catalog: a checkout of https://github.com/docker/mcp-registry, or an archive of one (tar or zip).

``path`` is the checkout's folder or an archive; ``url`` an archive to download, asked for again only when it changed
(ETag). In each, every ``<name>/server.yaml``, with a ``tools.json`` beside it, is an entry.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from mooring.catalog import docker_yaml
from mooring.catalog.docker_yaml import SERVER, TOOLS
from mooring.catalog.entry import Entry
from mooring.catalog.source import Batch, Get
from mooring.config.plan import CatalogSource
from mooring.errors import ConfigError, Unavailable

ARCHIVE = "https://github.com/docker/mcp-registry/archive/refs/heads/main.tar.gz"
ARCHIVE_BYTES = 64 << 20
FILE_BYTES = 4 << 20
"""Bytes of one file that is read; archives may claim anything."""
ENTRIES = 50_000

Texts = dict[str, dict[str, bytes]]
"""Folder to the two files of an entry."""


class DockerCatalog:
    """``kind = "docker"``."""

    kind = "docker"
    origins = (CatalogSource(name="docker", kind="docker", url=ARCHIVE, asked_first=True),)
    incremental = False

    async def read(self, origin: CatalogSource, mark: str, get: Get) -> AsyncIterator[Batch]:
        """See ``catalog.source.SourceKind``."""
        if origin.path:
            texts, found = await asyncio.to_thread(_local, Path(origin.path))
        else:
            answer = await get(origin.url, {"If-None-Match": mark} if mark else {}, ARCHIVE_BYTES)
            if answer.status == 304:
                yield Batch(unchanged=True, mark=mark)
                return
            if answer.status != 200:
                raise Unavailable(f"{origin.url} answered with HTTP {answer.status}.")
            texts, found = await asyncio.to_thread(_archive, answer.body, origin.url), answer.headers.get("etag", "")
        if mark and found == mark:
            yield Batch(unchanged=True, mark=mark)
            return
        yield await asyncio.to_thread(_batch, texts, origin.name, found)


def _local(path: Path) -> tuple[Texts, str]:
    """The files of a checkout or archive, and a digest of them."""
    if path.is_file():
        content = path.read_bytes()
        return _archive(content, str(path)), hashlib.sha256(content).hexdigest()
    if not path.is_dir():
        raise ConfigError(f"Docker's catalog is not there: {path} does not exist.")
    servers = path / "servers" if (path / "servers").is_dir() else path
    texts: Texts = {}
    digest = hashlib.sha256()
    for file in sorted(servers.glob(f"*/{SERVER}")):
        there = {name: file.with_name(name).read_bytes() for name in (SERVER, TOOLS) if file.with_name(name).exists()}
        texts[file.parent.name] = there
        for name, content in there.items():
            digest.update(f"{file.parent.name}/{name} {len(content)}\n".encode() + content)
    if not texts:
        raise ConfigError(f"{path} is no checkout of Docker's catalog: no folder in it has a {SERVER}.")
    return texts, digest.hexdigest()


def _archive(content: bytes, where: str) -> Texts:
    texts: Texts = {}
    try:
        for name, data in _members(content):
            folder, _, file = name.rpartition("/")
            if file in (SERVER, TOOLS):
                texts.setdefault(folder.rpartition("/")[2], {})[file] = data
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise Unavailable(f"{where} is not an archive that can be read: {error}") from None
    found = {folder: there for folder, there in sorted(texts.items()) if SERVER in there}
    if not found:
        raise Unavailable(f"{where} has no {SERVER} in it; it is not Docker's catalog.")
    return found


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Files of interest in an archive; nothing is unpacked to the disk."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as zipped:
            for info in zipped.infolist()[:ENTRIES]:
                if info.filename.endswith((SERVER, TOOLS)) and info.file_size <= FILE_BYTES:
                    yield info.filename, zipped.read(info)
        return
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for number, member in enumerate(tar):
            if number == ENTRIES:
                return
            if member.isfile() and member.name.endswith((SERVER, TOOLS)) and member.size <= FILE_BYTES:
                file = tar.extractfile(member)
                if file is not None:
                    yield member.name, file.read()


def _batch(texts: Texts, source: str, mark: str) -> Batch:
    entries: list[Entry] = []
    problems: list[str] = []
    for folder, there in texts.items():
        try:
            entries.append(docker_yaml.parse(_yaml(there[SERVER]), source, _tools(there.get(TOOLS))))
        except ValueError as error:
            problems.append(f"{folder}: {error}")
    return Batch(entries=entries, problems=problems, mark=mark)


def _tools(text: bytes | None) -> list[dict[str, Any]] | None:
    return None if text is None else msgspec.json.decode(text, type=list[dict[str, Any]])


def _yaml(text: bytes) -> dict[str, Any]:
    import yaml  # only for those who read this source

    try:
        found: Any = yaml.load(text, _plain_loader(yaml))  # noqa: S506 -- a safe loader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"not YAML: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in cast("dict[Any, Any]", found)):
        raise ValueError("not a table")
    return cast("dict[str, Any]", found)


def _plain_loader(yaml: Any) -> Any:
    """YAML's safe loader, but for dates: they stay text, as JSON has none."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Plain(base):
        yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in base.yaml_implicit_resolvers.items()
        }

    return Plain
