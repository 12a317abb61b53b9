"""Which view belongs to a key right now: the one mutable place of the routing half.

Holds the plan, asks ``Listings``, and keeps tables and views per workspace until something they are made of changes.
Also remembers which server returned a URI to a workspace. Called by ``relay.relay`` for every request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from mooring.config.plan import Mount, Plan, Workspace
from mooring.errors import Refused
from mooring.nouns import Listing, Principal
from mooring.relay.listings import Listings

if TYPE_CHECKING:
    from mooring.relay.table import Route, Table
    from mooring.relay.view import View

VIEWS = 1000
"""Views kept per workspace: where others say who somebody is, there may be any number of people."""
REMEMBERED_URIS = 1000
"""URIs kept per workspace that a server returned outside its listings."""


class _Room:
    """What is kept for one workspace between two changes."""

    def __init__(self) -> None:
        self.listings: Mapping[str, Listing] | None = None
        """By variant, of one moment: what tables and views are made of until the next change."""
        self.table: Table | None = None
        self.bare: dict[str, Table] = {}
        """By variant: that one alone, its names without a prefix."""
        self.views: dict[Principal, View] = {}
        self.uris: OrderedDict[str, str] = OrderedDict()

    def forget_views(self) -> None:
        self.listings = self.table = None
        self.bare.clear()
        self.views.clear()


class Views:
    """The views of all workspaces."""

    def __init__(
        self, plan: Plan, listings: Listings, unapproved: Callable[[], Mapping[str, Mapping[str, str]]] = dict
    ) -> None:
        """``unapproved``: variant to the tools that are withheld where pins are strict, with the reason."""
        self.plan = plan
        self._unapproved = unapproved
        self._listings = listings
        self._rooms: dict[str, _Room] = {}
        self._missing: dict[str, str] = {}

    @property
    def strict(self) -> bool:
        """Whether tools that changed are withheld."""
        return self.plan.gateway.pins == "strict"

    def of(self, principal: Principal) -> View:
        """The view of a key. Raises Refused when its workspace is gone."""
        room = self._rooms.get(principal.workspace)
        if room is not None:
            view = room.views.get(principal)
            if view is not None:
                return view
        workspace = self.plan.workspaces.get(principal.workspace)
        if workspace is None:
            raise Refused
        return self._make(workspace, principal)

    def allowed(self, principal: Principal, route: Route) -> bool:
        """Whether a key may use this route; asked for every request, whatever a list said."""
        return self.of(principal).decide("call", route).allowed

    def table(self, name: str) -> Table:
        """The table of a workspace. Raises Refused when there is no such workspace."""
        workspace = self.plan.workspaces.get(name)
        if workspace is None:
            raise Refused
        return self._table(workspace, self._room(name))

    def apply(self, plan: Plan) -> None:
        """Another plan holds from now on; what is known against a definition is not held against its successor."""
        same = {id for id, variant in plan.variants.items() if self._digest(id) == variant.digest}
        self._missing = {id: reason for id, reason in self._missing.items() if id in same}
        self.plan = plan
        self._rooms = {name: self._room(name) for name in plan.workspaces}
        for room in self._rooms.values():
            room.forget_views()

    def changed(self, variant: str) -> list[str]:
        """A listing, or the reason for its absence, changed: the workspaces that mount it, now without old views."""
        touched = [name for name, workspace in self.plan.workspaces.items() if _mounts(workspace, variant)]
        for name in touched:
            self._room(name).forget_views()
        return touched

    def missing(self, variant: str, reason: str | None) -> None:
        """Say why a variant has no listing yet, or (None) that nothing is missing any more."""
        before = self._missing.get(variant)
        if reason is None:
            self._missing.pop(variant, None)
        else:
            self._missing[variant] = reason
        if before != reason:
            self.changed(variant)

    def reason(self, variant: str) -> str:
        """Why a variant has no listing yet; "" when nothing is known against it."""
        return self._missing.get(variant, "")

    def remember(self, workspace: str, uris: Iterable[str], variant: str) -> None:
        """These URIs were returned by ``variant`` to this workspace."""
        kept = self._room(workspace).uris
        for uri in uris:
            kept[uri] = variant
            kept.move_to_end(uri)
        while len(kept) > REMEMBERED_URIS:
            kept.popitem(last=False)

    def remembered(self, workspace: str) -> Mapping[str, str]:
        """URI to variant id."""
        return self._room(workspace).uris

    def _digest(self, variant: str) -> str:
        known = self.plan.variants.get(variant)
        return known.digest if known is not None else ""

    def _room(self, name: str) -> _Room:
        return self._rooms.setdefault(name, _Room())

    def _table(self, workspace: Workspace, room: _Room) -> Table:
        if room.table is None:
            room.table = self._built(workspace.mounts, room)
        return room.table

    def _bare(self, workspace: Workspace, room: _Room, variant: str) -> Table:
        table = room.bare.get(variant)
        if table is None:
            mount = next((mount for mount in workspace.mounts if mount.variant == variant), None)
            mounts = () if mount is None else (msgspec.structs.replace(mount, prefix=""),)
            table = room.bare[variant] = self._built(mounts, room)
        return table

    def _built(self, mounts: tuple[Mount, ...], room: _Room) -> Table:
        from mooring.relay.table import build  # nobody asks before the daemon is ready

        unapproved = self._unapproved() if self.strict else None
        return build(mounts, self.plan.variants, self._offered(room), unapproved)

    def _offered(self, room: _Room) -> Mapping[str, Listing]:
        if room.listings is None:
            room.listings = self._listings.of(self.plan.variants)
        return room.listings

    def _make(self, workspace: Workspace, principal: Principal) -> View:
        from mooring.relay.view import View

        room = self._room(workspace.name)
        listings = self._offered(room)
        missing = {
            mount.server: self.plan.variants[mount.variant].unavailable or self._missing.get(mount.variant, "starting")
            for mount in workspace.mounts
            if mount.variant not in listings
        }
        if len(room.views) >= VIEWS:
            room.views.clear()
        bare = principal.variant if principal.bare else None
        table = self._table(workspace, room) if bare is None else self._bare(workspace, room, bare)
        view = room.views[principal] = View(principal, table, listings, missing, workspace.policies(principal.name))
        return view


def _mounts(workspace: Workspace, variant: str) -> bool:
    return any(mount.variant == variant for mount in workspace.mounts)
