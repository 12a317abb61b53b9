"""Looks at one plugin, in a process of its own: ``python -m mooring.plugins.inspection DISTRIBUTION NAME``.

Started by ``plugins.discovery``. Imports the plugin, asks for its servers, checks them, and prints a ``Found`` as JSON.
Whatever the plugin does (print, raise, exit, never return) stays in this process.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, cast

import msgspec

from mooring import __version__
from mooring.config.names import server_fault
from mooring.plugins.found import GROUP, Found, Server, Stamp
from mooring.plugins.hooks import PROJECT, Context
from mooring.plugins.spec import McpServerSpec

SERVERS_HOOK = "mooring_mcp_servers"
_PACKAGE = re.compile("[a-z0-9][a-z0-9+.-]*")
WHOLE = 1 << 20
"""Bytes up to which a file counts with its content; a larger one counts with its size and its time."""


def main() -> None:
    """Print what is found."""
    answer = os.dup(1)
    os.dup2(2, 1)  # what a plugin prints goes to stderr
    package, name, state = sys.argv[1:4]
    found = looked_at(package, name, Context(state))
    with os.fdopen(answer, "wb") as out:
        out.write(msgspec.json.encode(found))
    sys.stdout.flush()
    os._exit(0)  # threads that a plugin started do not hold this up


def looked_at(package: str, name: str, context: Context) -> Found:
    """What the entry point ``name`` of a distribution brings. Raises nothing for a plugin's fault."""
    found = Found(name=name, distribution=package)
    try:
        owner = distribution(package)
    except PackageNotFoundError:
        return msgspec.structs.replace(found, skipped="the distribution is not installed any more")
    found = msgspec.structs.replace(found, distribution_version=owner.version)
    entry = next((entry for entry in owner.entry_points if (entry.group, entry.name) == (GROUP, name)), None)
    if entry is None:
        return msgspec.structs.replace(found, skipped="it has no such entry point any more")
    found = msgspec.structs.replace(found, entry=entry.value)
    if too_new := _requires(owner):
        return msgspec.structs.replace(found, skipped=too_new)
    try:
        return _described(found, loaded(entry), context)
    except Exception as error:
        return msgspec.structs.replace(found, skipped=said(error), files=_files(entry))
    except SystemExit as error:
        return msgspec.structs.replace(found, skipped=f"it called exit({error.code})", files=_files(entry))


def loaded(entry: EntryPoint) -> Any:
    """The plugin: a module, an instance, or an instance of a class. Raises whatever the plugin raises."""
    plugin = entry.load()
    return plugin() if isinstance(plugin, type) else plugin


def said(error: BaseException) -> str:
    """An exception in one line."""
    return f"{type(error).__name__}: {error}".strip().removesuffix(":")


def _requires(owner: Distribution) -> str:
    """Why this Mooring is not the one that the distribution depends on; ``pip install --no-deps`` does not look."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in owner.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        if needed.name.lower() == PROJECT and not (needed.marker and not needed.marker.evaluate({"extra": ""})):
            return _unfit(str(needed.specifier))
    return ""


def _unfit(versions: str) -> str:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = SpecifierSet(versions).contains(__version__, prereleases=True)
    except InvalidSpecifier:
        return f'requires_mooring = "{versions}" is not a set of versions, such as ">=0.1,<1"'
    return "" if fits else f"it needs Mooring {versions}; this is {__version__}"


def _described(found: Found, plugin: Any, context: Context) -> Found:
    found = msgspec.structs.replace(
        found,
        version=_text(plugin, "version") or found.distribution_version,
        description=_text(plugin, "description"),
        categories=tuple(str(category) for category in getattr(plugin, "categories", ())),
        files=_module_files(plugin),
    )
    if unfit := _unfit(_text(plugin, "requires_mooring")):
        return msgspec.structs.replace(found, skipped=unfit)
    from mooring.plugins.manager import implemented

    hooks = implemented(found.name, plugin)
    problems: list[str] = []
    servers = tuple(_servers(_specs(plugin, hooks, context), plugin, found, problems))
    kept = tuple(hook for hook in hooks if hook != SERVERS_HOOK)
    if not (servers or kept or problems):
        return msgspec.structs.replace(found, skipped="it implements no hook of Mooring and no mcp_server_spec()")
    return msgspec.structs.replace(found, servers=servers, hooks=kept, problems=tuple(problems))


def _text(plugin: Any, name: str) -> str:
    value = getattr(plugin, name, "")
    return value if isinstance(value, str) else ""


def _specs(plugin: Any, hooks: Iterable[str], context: Context) -> Iterator[McpServerSpec]:
    if callable(getattr(plugin, "mcp_server_spec", None)):
        yield from _several(plugin.mcp_server_spec(), "mcp_server_spec()")
    if SERVERS_HOOK in hooks:
        from mooring.plugins.manager import called

        yield from _several(called(plugin, SERVERS_HOOK, context), SERVERS_HOOK)


def _several(answer: Any, hook: str) -> list[McpServerSpec]:
    specs: list[Any] = [answer] if isinstance(answer, McpServerSpec) else list(answer)
    for spec in specs:
        if not isinstance(spec, McpServerSpec):
            raise TypeError(f"{hook} returned something else than McpServerSpec: {type(spec).__name__}")
    return cast("list[McpServerSpec]", specs)


def _servers(specs: Iterable[McpServerSpec], plugin: Any, found: Found, problems: list[str]) -> Iterator[Server]:
    names: set[str] = set()
    for spec in specs:
        try:
            server = checked(spec)
            if server.name in names:
                raise ValueError("it brings two servers of that name")
        except (ValueError, OSError) as error:  # a ValidationError is a ValueError
            problems.append(f'its server "{spec.name}" is not valid: {error}')
            continue
        names.add(server.name)
        folder = server.host_source or _package_folder(plugin)
        source = hashlib.sha256(f"{found.distribution_version}\0{_digest(folder)}".encode()).hexdigest()[:16]
        yield msgspec.structs.replace(server, source=source)


def checked(spec: McpServerSpec) -> Server:
    """The spec with its types checked. Raises ValueError and OSError."""
    fields = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
    if isinstance(spec.args, str) or isinstance(spec.requirements, str) or isinstance(spec.packages, str):
        raise ValueError("args, requirements and packages are lists of text")
    fields["host_source"] = None if spec.host_source is None else os.path.abspath(spec.host_source)
    fields["env"] = dict(spec.env)
    server = msgspec.convert(fields, Server)
    for package in server.packages:
        if not _PACKAGE.fullmatch(package):
            raise ValueError(f'"{package}" is not the name of a Debian package')
    for requirement in server.requirements:
        _check_requirement(requirement)
    if fault := server_fault(server.name):
        raise ValueError(fault)
    if not server.command:
        raise ValueError("command is empty")
    if server.host_source is None:
        return server
    if not os.path.isdir(server.host_source):
        raise ValueError(f"host_source is no folder: {server.host_source}")
    package = os.path.isfile(os.path.join(server.host_source, "__init__.py"))
    return msgspec.structs.replace(server, is_package=package)


def _check_requirement(text: str) -> None:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f'"{text}" is not a requirement: {str(error).splitlines()[0]}') from None


def _module(plugin: Any) -> Any:
    name = plugin.__name__ if isinstance(plugin, type(sys)) else type(plugin).__module__
    return sys.modules.get(name)


def _package_folder(plugin: Any) -> str:
    """The folder of the plugin's own package; "" for a single module."""
    file = getattr(_module(plugin), "__file__", None) or ""
    folder = os.path.dirname(file)
    return folder if os.path.isfile(os.path.join(folder, "__init__.py")) else ""


def _digest(folder: str) -> str:
    content = hashlib.sha256()
    for file in sorted(Path(folder).rglob("*")) if folder else ():
        if "__pycache__" in file.parts or not file.is_file():
            continue
        status = file.stat()
        content.update(f"{file.relative_to(folder)}\0{status.st_size}\0".encode())
        content.update(file.read_bytes() if status.st_size < WHOLE else str(status.st_mtime_ns).encode())
    return content.hexdigest()


def _module_files(plugin: Any) -> dict[str, Stamp]:
    """The source files of the plugin's top-level package that were imported."""
    module = _module(plugin)
    return {} if module is None else _stamps(module.__name__.partition(".")[0])


def _files(entry: EntryPoint) -> dict[str, Stamp]:
    """The same of a plugin that could not be loaded, as far as it got. Its package itself may have been taken back."""
    from importlib.util import find_spec

    top = entry.module.partition(".")[0]
    found = _stamps(top)
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    if spec is not None and spec.origin and os.path.isfile(spec.origin):
        folder = Path(spec.origin).parent
        files = folder.rglob("*.py") if spec.submodule_search_locations else [Path(spec.origin)]
        found |= {str(file): stamp(str(file)) for file in files}
    return found


def _stamps(top: str) -> dict[str, Stamp]:
    files = (
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name == top or name.startswith(f"{top}.")
    )
    return {file: stamp(file) for file in files if file and os.path.isfile(file)}


def stamp(path: str) -> Stamp:
    """What tells versions of a file or folder apart. Raises OSError."""
    status = os.stat(path)
    return status.st_mtime_ns, status.st_ino


if __name__ == "__main__":
    main()
