"""An entry: what is known about one server that could be run. Pure.

A superset of server.json (schema 2025-12-11), whose names it uses, and of Docker's server.yaml. Made by
``catalog.server_json``, ``catalog.docker_yaml`` and ``catalog.own_toml``; kept by ``catalog.shelf``; found by
``catalog.search``; turned into something to start by ``catalog.adopt``.

What a source says and these structs have no word for is in ``residue``, so nothing is lost on the way in and out.
"""

from typing import Any, Literal

import msgspec

from mooring.catalog.residue import Residue

Form = Literal["server.json", "server.yaml", "mooring"]
Launch = Literal["container", "npm", "pypi", "remote"]
"""How an entry can be started here."""

LAUNCH_OF: dict[str, Launch] = {"oci": "container", "npm": "npm", "pypi": "pypi"}
"""Registry type of a package to the way it is started; other types cannot be."""


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A part of an entry; its JSON has the names of server.json."""


class Value(Part, frozen=True, kw_only=True):
    """Something a person may have to give. ``value`` is a template: ``{name}`` stands for a variable."""

    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    """``string`` | ``number`` | ``boolean`` | ``filepath``; ours besides: ``list``."""
    value: str | None = None
    """Fixed: nobody is asked, but for its variables."""
    default: str | None = None
    placeholder: str = ""
    """An example."""
    choices: tuple[str, ...] = ()


class Variable(Value, frozen=True, kw_only=True):
    """A value that has others in it: ``variables`` fill the places in ``value`` and ``default``."""

    variables: dict[str, Value] = {}


class KeyValue(Variable, frozen=True, kw_only=True):
    """An environment variable or a header."""

    name: str


class Argument(Variable, frozen=True, kw_only=True):
    """An argument: ``named`` (``name`` is the flag, dashes included) or ``positional``."""

    type: str = "positional"
    name: str = ""
    value_hint: str = ""
    """What a positional argument is called, when its value is asked for."""
    is_repeated: bool = False


class Transport(Part, frozen=True, kw_only=True):
    """How one speaks with a server: ``stdio``, ``streamable-http`` or ``sse``."""

    type: str = "stdio"
    url: str = ""
    headers: tuple[KeyValue, ...] = ()
    variables: dict[str, Value] = {}


class Package(Part, frozen=True, kw_only=True):
    """A package or an image that holds the server."""

    registry_type: str
    """``npm`` | ``pypi`` | ``oci`` | ``nuget`` | ``mcpb`` | ..."""
    identifier: str
    """Name in its registry; for ``oci`` with host, and tag or digest; for ``mcpb`` a URL."""
    version: str = ""
    registry_base_url: str = ""
    file_sha256: str = msgspec.field(default="", name="fileSha256")
    runtime_hint: str = ""
    runtime_arguments: tuple[Argument, ...] = ()
    package_arguments: tuple[Argument, ...] = ()
    environment_variables: tuple[KeyValue, ...] = ()
    transport: Transport = Transport()
    volumes: tuple[str, ...] = ()
    """Templates, ``source:target[:options]``."""
    network: Literal["open", "none"] = "open"
    allowed_hosts: tuple[str, ...] = ()
    """The only ``host:port`` it needs; empty: not known."""
    user: str = ""
    """Whom its process runs as, a template."""


class Repository(Part, frozen=True, kw_only=True):
    """Where its source is."""

    url: str = ""
    source: str = ""
    id: str = ""
    subfolder: str = ""


class Icon(Part, frozen=True, kw_only=True):
    """A picture of it."""

    src: str
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    theme: str = ""


class ToolNote(Part, frozen=True, kw_only=True):
    """A tool that the source lists; the server itself decides what it has."""

    name: str
    description: str = ""
    more: dict[str, Any] = {}
    """Everything else the source says about it."""


class Login(Part, frozen=True, kw_only=True):
    """An OAuth login that a source declares."""

    provider: str = ""
    secret: str = ""
    env: str = ""


class Entry(Part, frozen=True, kw_only=True):
    """One server that could be run."""

    id: str
    """``<source>/<name in lower case>``."""
    source: str
    """Name of the source it was read from; a starter entry keeps the id of the source that it describes."""
    name: str
    """What people call it."""
    own_name: str = ""
    """Its name at the source, as written there."""
    description: str = ""
    version: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    official: bool = False
    """By the maker of what it gives access to, or by the source's own maintainers."""
    featured: bool = False
    popularity: int = 0
    """0 to 100."""
    status: str = "active"
    """``active`` | ``deprecated``"""
    website_url: str = ""
    repository: Repository | None = None
    icons: tuple[Icon, ...] = ()
    packages: tuple[Package, ...] = ()
    remotes: tuple[Transport, ...] = ()
    inputs: dict[str, Value] = {}
    """Settings that any template of this entry may name."""
    logins: tuple[Login, ...] = ()
    tools: tuple[ToolNote, ...] = ()
    published_at: str = ""
    updated_at: str = ""
    """As the source writes times."""
    form: Form = "mooring"
    """The form it came in, and is rendered in."""
    residue: Residue = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """How it can be started here, in the order the source prefers."""
        found: list[Launch] = [
            LAUNCH_OF[package.registry_type] for package in self.packages if package.registry_type in LAUNCH_OF
        ]
        if self.remotes:
            found.append("remote")
        return tuple(dict.fromkeys(found))

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of what must be given before it can be started, by the way it would be started first."""
        launchable = [package for package in self.packages if package.registry_type in LAUNCH_OF]
        parts: tuple[KeyValue | Argument, ...] = ()
        if launchable:
            first = launchable[0]
            parts = (*first.environment_variables, *first.package_arguments, *first.runtime_arguments)
        elif self.remotes:
            parts = self.remotes[0].headers
        names = [name for part in parts for name in wanted(part)]
        names += [name for name, value in self.inputs.items() if _asked(value)]
        if not launchable and self.remotes:
            names += [name for name, value in self.remotes[0].variables.items() if _asked(value)]
        return tuple(dict.fromkeys(names))


def wanted(part: KeyValue | Argument) -> list[str]:
    """What a person must give for this part: itself, or, when its value is fixed, variables in it."""
    if part.value is None and part.default is None and not part.variables:
        hint = part.value_hint if isinstance(part, Argument) else ""
        return [part.name or hint] if part.is_required else []
    return [name for name, value in part.variables.items() if _asked(value)]


def _asked(value: Value) -> bool:
    return value.is_required and value.value is None and value.default is None


def entry_id(source: str, name: str) -> str:
    """The id of what a source calls ``name``."""
    return f"{source}/{name.strip().lower()}"
