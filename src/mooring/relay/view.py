"""What one key sees of one workspace: routes that pass its filter, and the list answers as ready bytes.

Views are made per (workspace generation, key) and thrown away with the generation; a list costs a join once and a
lookup afterwards. Pure. Made by ``relay.views``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Raw

from mooring.access.policy import Decision, decide, unknown
from mooring.config.plan import Policy
from mooring.nouns import Caching, Era, Listing, Principal, Scope
from mooring.relay.table import Route, Table, literal_prefix
from mooring.wire import jsonrpc

MISSING_KEY = "mooring/missing"
"""``_meta`` member of a list result: servers of which something is missing in this list, with the reason."""
_MODERN = b',"resultType":"complete","ttlMs":%d,"cacheScope":"%b"}'
_NOTHING = Caching()
_COLLECTIONS = ("extensions", "experimental")
"""Capabilities that hold many."""
_LISTS = {
    "tools/list": b"tools",
    "prompts/list": b"prompts",
    "resources/list": b"resources",
    "resources/templates/list": b"resourceTemplates",
}


class View:
    """An immutable view; ``missing`` maps a server that is not listed yet to the reason, in words."""

    def __init__(
        self,
        principal: Principal,
        table: Table,
        listings: Mapping[str, Listing],
        missing: Mapping[str, str],
        policies: tuple[Policy, ...] = (),
    ) -> None:
        self.table = table
        self.policies = policies
        """Those that hold for this key."""
        self.limited = tuple(policy for policy in policies if policy.rate or policy.concurrency)
        """Those of them that count calls."""
        self.shortest = min(
            (policy for policy in policies if policy.max_result), key=lambda policy: policy.max_result, default=None
        )
        """The one of them that allows the least of a result."""
        self._calls: dict[str, Decision] = {}
        """What was decided for calls of tools, by advertised name."""
        self.listings = listings
        self.principal = principal
        self.mounts = tuple(mount for mount in table.mounts if principal.variant in (None, mount.variant))
        """Those this key may know of."""
        self.missing = {mount.server: missing[mount.server] for mount in self.mounts if mount.server in missing}
        self.tools = self._listed(table.tools)
        """Those it may list. Calls look in ``table`` and ask the policy for themselves."""
        self.prompts = self._listed(table.prompts)
        self._parts: dict[str, list[tuple[Caching, float]]] = {}
        self._ready: dict[tuple[str, Era], tuple[bytes, bytes]] = {}
        """The newest answer of each kind, and how it ends."""

    def _listed(self, routes: Mapping[str, Route]) -> dict[str, Route]:
        return {name: route for name, route in routes.items() if self.decide("list", route).allowed}

    def decide(self, scope: Scope, route: Route) -> Decision:
        """What the policy says of listing or calling what is behind a route."""
        return decide(self.principal, scope, route.about, self.policies)

    def for_call(self, route: Route) -> Decision:
        """The same for calling a tool of the table, remembered: a view never changes."""
        decision = self._calls.get(route.advertised)
        if decision is None:
            decision = self._calls[route.advertised] = self.decide("call", route)
        return decision

    def _open(self, routes: Iterable[Route], scope: Scope) -> list[Route]:
        return [route for route in routes if self.decide(scope, route).allowed]

    def listing(self, method: str, era: Era, now: float = 0.0) -> bytes | None:
        """The raw result of a list method, or None when ``method`` is not one. ``now``: epoch seconds."""
        tail = b"}" if era == "legacy" else self._caching(method, now)
        before, ready = self._ready.get((method, era), (b"", b""))
        if ready and before == tail:
            return ready
        body = ready[: -len(before)] if ready else self._body(method)
        if body is None:
            return None
        ready = body + tail
        self._ready[method, era] = tail, ready
        return ready

    def _body(self, method: str) -> bytes | None:
        member = _LISTS.get(method)
        if member is None:
            return None
        items = b",".join(route.raw for route in self._routes(method))
        body = b'{"' + member + b'":[' + items + b"]"
        if missing := {**self.missing, **self._partial(method)}:
            named = [{"server": server, "reason": reason} for server, reason in missing.items()]
            body += b',"_meta":' + jsonrpc.text({MISSING_KEY: named})
        return body

    def _caching(self, method: str, now: float) -> bytes:
        """The end of a modern list: how long, in milliseconds, and by whom it may be reused. No longer than any server
        says of its part, no wider than all of them say, and not beyond the key that asks, since every key may see
        another list. Not at all while servers are missing."""
        parts = self._parts.get(method)
        if parts is None:
            parts = self._parts[method] = self._said(method)
        left, public = 0.0, False
        if parts and not self.missing and not self._partial(method):
            left = min(said.ttl_ms - (now - taken_at) * 1000 if said.ttl_ms else 0 for said, taken_at in parts)
            public = self.principal.key_id.startswith("anonymous:") and all(said.public for said, _ in parts)
        return _MODERN % (max(int(left), 0), b"public" if public else b"private")

    def _said(self, method: str) -> list[tuple[Caching, float]]:
        """What the servers that have such a list say of it, and when they said it."""
        capability = method.partition("/")[0]
        listings = (self.listings[mount.variant] for mount in self.mounts if mount.variant in self.listings)
        return [
            (listing.caching.get(method, _NOTHING), listing.taken_at)
            for listing in listings
            if capability in jsonrpc.fields(listing.facts.capabilities)
        ]

    def _partial(self, method: str) -> dict[str, str]:
        """Servers that did not tell all of one list, with the reason; what stands in for it may be of another day."""
        found: dict[str, str] = {}
        for mount in self.mounts:
            listing = self.listings.get(mount.variant)
            problems = [problem for problem in listing.problems if problem.startswith(f"{method}:")] if listing else []
            if problems:
                found[mount.server] = "; ".join(problems)
        return found

    def _routes(self, method: str) -> Iterable[Route]:
        match method:
            case "tools/list":
                return self.tools.values()
            case "prompts/list":
                return self.prompts.values()
            case "resources/list":
                return self._open(self.table.resources.values(), "list")
            case _:
                return self._open(self.table.template_order, "list")

    def resource(self, uri: str, remembered: Mapping[str, str]) -> Route | None:
        """The route of a URI: the exact one, the template with the longest literal prefix, a variant that returned
        this URI before (``remembered``: URI to variant id), or the only mount with resources. None: nobody's."""
        exact = self.table.resources.get(uri) or self._template(uri)
        if exact is not None:
            return exact if self._open([exact], "call") else None
        candidates = self._open(self._with_resources(), "call")
        known = remembered.get(uri)
        for route in candidates:
            if route.variant.id == known:
                return route
        return candidates[0] if len(candidates) == 1 else None

    def withheld(self, uri: str) -> tuple[Route | None, Decision]:
        """Of a URI without a route: what it would lead to if the caller might, and why it does not."""
        for route in filter(None, (self.table.resources.get(uri), self._template(uri), *self._with_resources())):
            decision = self.decide("call", route)
            if not decision.allowed:
                return route, decision
        return None, unknown("resource")

    def template(self, template: str) -> Route | None:
        """The route of a URI template as it was listed, or of the URI it covers (completion references)."""
        for route in self.table.template_order:
            if route.upstream == template:
                return route if self._open([route], "call") else None
        return self.resource(template, {})

    def _template(self, uri: str) -> Route | None:
        for route in self.table.templates:
            if uri.startswith(literal_prefix(route.upstream)):
                return route
        return None

    def _with_resources(self) -> Iterable[Route]:
        for route in self.table.owners:
            if b'"resources"' in self.listings[route.variant.id].facts.capabilities:
                yield route

    def instructions(self) -> str:
        """The servers' own instructions, each under its prefix; a key with a tool filter gets those of its tools."""
        useful = {route.variant.id for route in self.tools.values()}
        parts = [
            f"# {mount.prefix or mount.server}\n{listing.facts.instructions}"
            for mount in self.mounts
            if (listing := self.listings.get(mount.variant)) and listing.facts.instructions
            if not self.principal.tools or mount.variant in useful
        ]
        return "\n\n".join(parts)

    def capabilities(self, era: Era) -> dict[str, Any]:
        """What this view can do: what its servers said, or all of it while some of them have not been heard yet; and
        what servers of the client's era can do that Mooring does not know, since it passes that on."""
        heard = [self.listings[mount.variant].facts for mount in self.mounts if mount.variant in self.listings]
        unheard = bool(self.missing) or len(heard) < len(self.mounts)
        said = {name for facts in heard for name in jsonrpc.fields(facts.capabilities)}
        offer: dict[str, Any] = {"tools": {"listChanged": True}}
        if unheard or "prompts" in said:
            offer["prompts"] = {"listChanged": True}
        if unheard or "resources" in said:
            offer["resources"] = {"listChanged": True, "subscribe": True}
        for plain in ("completions", "logging"):
            if unheard or plain in said:
                offer[plain] = {}
        if not self.principal.tools:
            for facts in heard:
                if facts.era == era:
                    _add_unknown(offer, jsonrpc.fields(facts.capabilities))
        return offer


def _add_unknown(offer: dict[str, Any], said: Mapping[str, Raw]) -> None:
    """Put capabilities that Mooring does not know on offer; those of several servers together, the first one's word
    counts."""
    for name, raw in said.items():
        if name in _COLLECTIONS:
            for key, value in jsonrpc.fields(raw).items():
                offer.setdefault(name, {}).setdefault(key, value)
        elif name == "tasks":
            offer.setdefault(name, Raw(jsonrpc.replace(raw, list=None)))  # the tasks of others are nobody's business
        else:
            offer.setdefault(name, raw)
