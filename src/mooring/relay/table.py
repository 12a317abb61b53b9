"""From mounts and listings to routes: which advertised name leads to which server. Pure; rebuilt, never changed.

An advertised name depends only on the configuration and (server, tool). It is looked up, never parsed. URIs are never
rewritten. Names that clash are withdrawn, all of them, and reported.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from mooring.access.policy import CAUTIOUS, About, believed, matches, offered
from mooring.config.plan import Mount, Variant
from mooring.config.plan_servers import Launch, Remote
from mooring.nouns import Facts, InstanceKey, Item, Listing, Problem
from mooring.wire import jsonrpc
from mooring.wire.param_headers import MARK, InvalidMarks, Marked, marked

NAME_LIMIT = 60
"""Longest advertised name: model APIs allow 64, and clients put a few characters of their own in front."""
_KEPT = 51
_MARK = MARK.encode()
_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Route(msgspec.Struct, frozen=True):
    """Where an advertised name or a URI leads."""

    advertised: str
    upstream: str
    """The name, URI or URI template as the server knows it."""
    mount: Mount
    variant: Variant
    raw: bytes
    """The listed item as this workspace sees it."""
    about: About
    """The same for the policy."""
    facts: Facts
    """What the server said about itself when it was listed."""
    common: InstanceKey | None
    """The instance that serves whoever calls; None where that depends on the caller."""
    marks: tuple[Marked, ...] = ()
    """The arguments of a tool that requests repeat as headers."""


class Table(msgspec.Struct, frozen=True):
    """An immutable snapshot of everything a workspace offers, in configuration order."""

    tools: dict[str, Route] = {}
    prompts: dict[str, Route] = {}
    resources: dict[str, Route] = {}
    templates: tuple[Route, ...] = ()
    """Longest literal prefix first."""
    template_order: tuple[Route, ...] = ()
    """As listed."""
    mounts: tuple[Mount, ...] = ()
    owners: tuple[Route, ...] = ()
    """One route without a name for each mount that has a listing: where a URI goes that no listing names."""
    problems: tuple[Problem, ...] = ()


def advertised(prefix: str, name: str) -> str:
    """The name under which a tool or prompt of the mount ``prefix`` is offered; an empty prefix changes nothing."""
    if not prefix:
        return name
    shown = f"{prefix}_{''.join(char if char in _LEGAL else '_' for char in name)}"
    if len(shown) <= NAME_LIMIT:
        return shown
    from hashlib import sha256

    digest = sha256(prefix.encode() + b"\0" + name.encode("utf-8", "surrogatepass")).digest()
    return f"{shown[:_KEPT]}_{base64.b32encode(digest[:5]).decode().lower()}"


def build(
    mounts: Sequence[Mount],
    variants: Mapping[str, Variant],
    listings: Mapping[str, Listing],
    blocked: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """The table of one workspace. Mounts without a listing contribute nothing yet. ``blocked``: variant to its tools
    that nobody may have, with the reason."""
    held = blocked or {}
    problems: list[Problem] = []
    heard = [_Mounted(mount, variants[mount.variant], listings[mount.variant]) for mount in _heard(mounts, listings)]
    tools = [route for here in heard for route in _marked(here, _tools(here, held.get(here.variant.id, {})), problems)]
    prompts = [route for here in heard for route in _prompts(here)]
    resources = [_resource(here, item) for here in heard for item in here.listing.resources]
    templates = [_resource(here, item) for here in heard for item in here.listing.templates]
    return Table(
        tools=_without_clashes("tool", tools, problems),
        prompts=_without_clashes("prompt", prompts, problems),
        resources=_first_wins(resources, problems),
        templates=tuple(sorted(templates, key=lambda route: -len(literal_prefix(route.upstream)))),
        template_order=tuple(templates),
        mounts=tuple(mounts),
        owners=tuple(_resource(here, Item("", b"")) for here in heard),
        problems=tuple(problems),
    )


def literal_prefix(template: str) -> str:
    """The part of a URI template before its first expression (RFC 6570)."""
    return template.partition("{")[0]


def _heard(mounts: Iterable[Mount], listings: Mapping[str, Listing]) -> Iterable[Mount]:
    return (mount for mount in mounts if mount.variant in listings)


class _Mounted:
    """A mount with what is behind it."""

    def __init__(self, mount: Mount, variant: Variant, listing: Listing) -> None:
        self.mount, self.variant, self.listing = mount, variant, listing
        everybody = mount.sharing == "shared" and variant.dialogue != "session"
        self._common = variant.key() if everybody and not isinstance(variant.launch, Remote) else None

    def route(self, advertised: str, upstream: str, raw: bytes, about: About) -> Route:
        return Route(advertised, upstream, self.mount, self.variant, raw, about, self.listing.facts, self._common)


def _tools(here: _Mounted, blocked: Mapping[str, str]) -> Iterable[Route]:
    mount, variant = here.mount, here.variant
    confirmed = (*variant.tools.confirm, *mount.tools.confirm)
    for item in here.listing.tools:
        if not offered(item.name, variant.tools, mount.tools):
            continue
        name = advertised(mount.prefix, item.name)
        about = About(
            "tool",
            mount.server,
            variant.id,
            name,
            item.name,
            believed(_annotations(item.raw)) if variant.trusted else CAUTIOUS,
            matches(item.name, confirmed),
            _withheld(blocked.get(item.name, "")),
        )
        yield here.route(name, item.name, _renamed(item, name), about)


def _withheld(why: str) -> str:
    return why and f"its definition is not approved ({why})"


def _prompts(here: _Mounted) -> Iterable[Route]:
    for item in here.listing.prompts:
        name = advertised(here.mount.prefix, item.name)
        about = About("prompt", here.mount.server, here.variant.id, name, item.name)
        yield here.route(name, item.name, _renamed(item, name), about)


def _resource(here: _Mounted, item: Item) -> Route:
    about = About("resource", here.mount.server, here.variant.id, upstream=item.name)
    return here.route(item.name, item.name, item.raw, about)


def _renamed(item: Item, name: str) -> bytes:
    return item.raw if name == item.name else jsonrpc.replace(item.raw, name=jsonrpc.text(name))


def _annotations(raw: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(jsonrpc.fields(raw).get("annotations", jsonrpc.EMPTY), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _marked(here: _Mounted, routes: Iterable[Route], problems: list[Problem]) -> Iterable[Route]:
    """Tools with what their schemas say about headers. A tool that breaks the rules must not be used over HTTP; on
    stdio its marks mean nothing."""
    for route in routes:
        try:
            marks = marked(_schema(route.raw)) if _MARK in route.raw else ()
        except InvalidMarks as error:
            if not (here.listing.facts.era == "modern" and _speaks_http(route.variant.launch)):
                yield route
                continue
            problems.append(
                Problem("warning", f"the tool {route.upstream!r} of {route.mount.server} is left out: {error}")
            )
        else:
            yield msgspec.structs.replace(route, marks=marks) if marks else route


def _schema(raw: bytes) -> Any:
    return jsonrpc.value(jsonrpc.members(raw).get("inputSchema", jsonrpc.EMPTY))


def _speaks_http(launch: Launch) -> bool:
    return isinstance(launch, Remote) or getattr(launch, "port", None) is not None


def _without_clashes(kind: str, routes: Sequence[Route], problems: list[Problem]) -> dict[str, Route]:
    claims: dict[str, list[Route]] = {}
    for route in routes:
        claims.setdefault(route.advertised, []).append(route)
    for name, claimed in claims.items():
        if len(claimed) > 1:
            owners = " and ".join(f"{route.upstream!r} of {route.mount.server}" for route in claimed)
            problems.append(
                Problem("error", f"the {kind} name {name!r} stands for {owners}; all are withdrawn, change a prefix")
            )
    return {name: claimed[0] for name, claimed in claims.items() if len(claimed) == 1}


def _first_wins(routes: Sequence[Route], problems: list[Problem]) -> dict[str, Route]:
    table: dict[str, Route] = {}
    for route in routes:
        first = table.setdefault(route.upstream, route)
        if first is not route:
            both = f"{first.mount.server} and {route.mount.server}"
            problems.append(Problem("warning", f"{both} both offer {route.upstream}; the first one serves it"))
    return table
