"""From what LiteLLM should have and what it has to the least that must change. Pure; called by ``export.litellm``.

Only entries of this installation are ever named in a change. The changes are in an order in which nobody gets more
than is wanted at any time, whichever of them is the last that is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from mooring.export.litellm_entries import ROUTES, Grant, Key, Names, Observed, Server, Team
from mooring.export.litellm_wanted import Registration, Wanted

Action = Literal["create", "update", "remove"]


class Change(msgspec.Struct, frozen=True):
    """One thing to do in LiteLLM."""

    action: Action
    entry: Server | Team | Key
    why: tuple[str, ...] = ()
    """For an update the fields that differ, for the rest why, where it is not plain."""
    fresh: bool = False
    """Of a key that is created: it needs a new value, because somebody ended or changed the old one, or knows it
    already."""

    @property
    def kind(self) -> str:
        """``server`` | ``team`` | ``key``"""
        return type(self.entry).__name__.lower()


def clashing(found: Iterable[Registration], observed: Observed, names: Names) -> tuple[Registration, ...]:
    """Those whose name or id other people's servers have already."""
    foreign = [server for server in observed.servers if not ours(server, names)]
    called = {name.casefold() for server in foreign for name in _called(server)}
    ids = {server.id for server in foreign}
    return tuple(each for each in found if each.name.casefold() in called or names.server(each.variant) in ids)


def changes(wanted: Wanted, observed: Observed, names: Names, hashes: Mapping[str, str]) -> tuple[Change, ...]:
    """What to do, in this order. ``hashes``: workspace to SHA-256 of its LiteLLM key, where one is known. ``wanted``
    holds nothing that is ``clashing``."""
    keys = list(_keys(wanted, observed, names, hashes))
    return (
        *(change for change in keys if change.action == "remove"),
        *_servers(wanted, observed, names),
        *_teams(wanted, observed),
        *(change for change in keys if change.action != "remove"),
        *_unwanted_teams(wanted, observed, names, hashes),
    )


def ours(server: Server, names: Names) -> bool:
    """Whether this installation made the server. Either sign is enough: LiteLLM's own pages rewrite ``mcp_info``."""
    signed = server.tag.get("installation") == names.installation
    return not server.fixed and (signed or server.id.startswith(names.prefix))


def _servers(wanted: Wanted, observed: Observed, names: Names) -> Iterator[Change]:
    """Removals come first, since names must be free."""
    by_id = {server.id: server for server in wanted.servers}
    owner = {server.name.casefold(): server.id for server in wanted.servers}
    kept: dict[str, Server] = {}
    for server in observed.servers:
        if not ours(server, names):
            continue
        in_the_way = [name for name in _called(server) if owner.get(name.casefold(), server.id) != server.id]
        if server.id in by_id and not in_the_way:
            kept[server.id] = server
        else:
            yield Change("remove", server, ("its name is another's",) if in_the_way else ())
    for server in wanted.servers:
        if server.id not in kept:
            yield Change("create", server)
        elif differing := _differing(server, kept[server.id]):
            yield Change("update", msgspec.structs.replace(server, others=kept[server.id].others), differing)


def _teams(wanted: Wanted, observed: Observed) -> Iterator[Change]:
    there = {team.id: team for team in observed.teams}
    for team in wanted.teams:
        if team.id not in there:
            yield Change("create", team)
        elif differing := _differing(team, there[team.id]):
            yield Change("update", msgspec.structs.replace(team, others=there[team.id].others), differing)


def _unwanted_teams(wanted: Wanted, observed: Observed, names: Names, hashes: Mapping[str, str]) -> Iterator[Change]:
    """Deleting a team ends all of its keys: one that holds keys of other people stays, and opens nothing."""
    there = {team.id for team in wanted.teams}
    lodgers = {key.team for key in observed.keys if not _our_key(key, names, hashes)}
    for team in observed.teams:
        if team.id in there or not names.workspace(team.id):
            continue
        if team.id not in lodgers:
            yield Change("remove", team)
        elif team.grant != Grant():
            yield Change("update", msgspec.structs.replace(team, grant=Grant()), ("grant",))


def _keys(wanted: Wanted, observed: Observed, names: Names, hashes: Mapping[str, str]) -> Iterator[Change]:
    teams = {team.id: team for team in wanted.teams}
    standing = {team.id for team in observed.teams}
    done: set[str] = set()
    for key in observed.keys:
        if not _our_key(key, names, hashes):
            continue
        workspace = _workspace(key, names, hashes)
        team = teams.get(names.team(workspace))
        if team is None or key.team != team.id or key.hash != hashes.get(workspace) or workspace in done:
            yield Change("remove", key)
            continue
        done.add(workspace)
        right = _key(workspace, team, names, key.hash)
        if differing := _differing(right, key):
            yield Change("update", right, differing)
    known = {key.hash for key in observed.keys}
    for team in wanted.teams:
        workspace = names.workspace(team.id)
        if workspace in done:
            continue
        # A value is used again only where nobody can have ended it on purpose: the team is gone as well.
        value = hashes.get(workspace, "")
        fresh = not value or team.id in standing or value in known
        yield Change("create", _key(workspace, team, names, "" if fresh else value), fresh=fresh)


def _key(workspace: str, team: Team, names: Names, value: str) -> Key:
    """A key repeats its team's grant. An empty one would mean all that the team has, but a team without servers is not
    wanted at all."""
    return Key(names.key(workspace), team.id, value, team.grant, ROUTES)


def _our_key(key: Key, names: Names, hashes: Mapping[str, str]) -> bool:
    return bool(_workspace(key, names, hashes))


def _workspace(key: Key, names: Names, hashes: Mapping[str, str]) -> str:
    """The workspace a key was made for, also when somebody renamed it; "" when it is not ours."""
    renamed = next((workspace for workspace, known in hashes.items() if known == key.hash), "")
    return renamed or names.workspace(key.alias)


def _called(server: Server) -> tuple[str, ...]:
    return tuple(name for name in (server.name, server.alias) if name)


def _differing(right: Server | Team | Key, there: Server | Team | Key) -> tuple[str, ...]:
    """The fields in which two entries differ."""
    compared = (field for field in right.__struct_fields__ if field != "others")
    return tuple(field for field in compared if getattr(right, field) != getattr(there, field))
