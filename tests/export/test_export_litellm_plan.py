"""The changes that lead from what LiteLLM has to what it should have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mooring.export.litellm_entries import ROUTES, Grant, Key, Names, Observed, Server, Team
from mooring.export.litellm_plan import Change, changes, clashing
from mooring.export.litellm_wanted import Registration, Wanted, wanted

NAMES = Names("abc")
HASH = "hash of the key of a"


def registration(variant: str, *workspaces: str) -> Registration:
    return Registration(variant, variant.replace("-", "_"), workspaces, f"http://mooring/s/{variant}/mcp")


def want(*found: Registration) -> Wanted:
    return wanted(found, NAMES, {each.variant: f"print of {each.variant}" for each in found})


TWO = want(registration("git", "a", "b"), registration("time-1f", "a"))


class Model:
    """LiteLLM as far as changes go; ``apply`` refuses what LiteLLM would refuse."""

    def __init__(self, observed: Observed = Observed(), hashes: dict[str, str] | None = None) -> None:
        self.servers = {server.id: server for server in observed.servers}
        self.teams = {team.id: team for team in observed.teams}
        self.keys = {key.hash: key for key in observed.keys}
        self.hashes = dict(hashes or {})
        self.made = 0

    @property
    def observed(self) -> Observed:
        return Observed(tuple(self.servers.values()), tuple(self.teams.values()), tuple(self.keys.values()))

    def planned(self, right: Wanted) -> tuple[Change, ...]:
        return changes(right, self.observed, NAMES, self.hashes)

    def apply(self, right: Wanted) -> tuple[Change, ...]:
        planned = self.planned(right)
        for change in planned:
            self._apply(change)
        return planned

    def _apply(self, change: Change) -> None:
        match change.entry:
            case Server() as server:
                self._put(self.servers, server.id, change)
                called = [name for each in self.servers.values() for name in names_of(each)]
                assert len(called) == len(set(called)), "two servers of one name"
            case Team() as team:
                self._put(self.teams, team.id, change)
                if change.action == "remove":
                    self.keys = {hash: key for hash, key in self.keys.items() if key.team != team.id}
            case Key() as key:
                if change.fresh:
                    self.made += 1
                    key = msgspec.structs.replace(key, hash=f"new {self.made}")
                    self.hashes[NAMES.workspace(key.alias)] = key.hash
                if change.action != "remove":
                    assert key.grant.servers
                    assert set(key.grant.servers) <= set(self.teams[key.team].grant.servers), "403"
                    assert all(each.alias != key.alias for hash, each in self.keys.items() if hash != key.hash), "400"
                self._put(self.keys, key.hash, msgspec.structs.replace(change, entry=key))

    def _put(self, table: dict[str, Any], id: str, change: Change) -> None:
        assert (id in table) == (change.action != "create"), f"{change.action} of {id}"
        if change.action == "remove":
            del table[id]
        else:
            table[id] = change.entry


def names_of(server: Server) -> set[str]:
    return {name.casefold() for name in (server.name, server.alias) if name}


def synced(right: Wanted = TWO) -> Model:
    model = Model()
    model.apply(right)
    return model


def shown(planned: tuple[Change, ...]) -> list[tuple[str, str, str]]:
    return [(change.action, change.kind, change.entry.alias or getattr(change.entry, "id", "")) for change in planned]


def test_an_empty_litellm_gets_everything_once() -> None:
    """R17: a second look changes nothing."""
    model = Model()
    assert shown(model.apply(TWO)) == [
        ("create", "server", "git"),
        ("create", "server", "time_1f"),
        ("create", "team", "mooring a"),
        ("create", "team", "mooring b"),
        ("create", "key", "mooring-abc-a"),
        ("create", "key", "mooring-abc-b"),
    ]
    assert model.planned(TWO) == ()


def test_teams_and_keys_open_what_their_workspace_has_and_no_more() -> None:
    """R19"""
    model = synced()
    granted = {team.alias: team.grant.servers for team in model.teams.values()}
    assert granted == {"mooring a": ("mooring-abc-git", "mooring-abc-time-1f"), "mooring b": ("mooring-abc-git",)}
    assert {key.alias: key.grant.servers for key in model.keys.values()} == {
        "mooring-abc-a": granted["mooring a"],
        "mooring-abc-b": granted["mooring b"],
    }
    assert all(key.routes == ROUTES for key in model.keys.values())
    assert not any(server.open for server in model.servers.values())


def test_what_differs_is_updated_and_named() -> None:
    """R17: changes of URL, transport and auth come through."""
    drifts: dict[str, Any] = {
        "name": "renamed",
        "alias": "renamed",
        "url": "http://elsewhere",
        "transport": "sse",
        "auth": "api_key",
        "headers": {"X": "y"},
        "groups": ("all",),
        "allowed_tools": ("one",),
        "forwarded": ("Cookie",),
        "open": True,
        "tag": {},
    }
    for field, value in drifts.items():
        model = synced()
        id = NAMES.server("git")
        model.servers[id] = msgspec.structs.replace(model.servers[id], **{field: value}, others={"logo": "x"})
        (change,) = model.apply(TWO)
        assert (change.action, change.kind, change.why) == ("update", "server", (field,))
        assert isinstance(change.entry, Server)
        assert change.entry.others == {"logo": "x"}
        assert model.planned(TWO) == ()


def test_a_new_secret_is_written_though_it_cannot_be_read_back() -> None:
    model = synced()
    found = [registration("git", "a", "b"), registration("time-1f", "a")]
    (change,) = model.planned(wanted(found, NAMES, {"git": "another", "time-1f": "print of time-1f"}))
    assert change.why == ("tag",)


def test_two_of_our_servers_that_swapped_names_get_them_back() -> None:
    model = synced()
    git, time = (model.servers[NAMES.server(variant)] for variant in ("git", "time-1f"))
    model.servers[git.id] = msgspec.structs.replace(git, name=time.name, alias=time.name)
    model.servers[time.id] = msgspec.structs.replace(time, name=git.name, alias=git.name)
    model.apply(TWO)
    assert model.servers == {git.id: git, time.id: time}


def test_a_stale_entry_of_ours_under_another_id_goes() -> None:
    """R17: duplicates of our entries are cleaned."""
    model = Model(Observed(servers=(Server("old", "git", "http://old", tag={"installation": "abc"}),)))
    assert ("remove", "server", "old") in shown(model.apply(TWO))
    assert model.planned(TWO) == ()


def test_a_removed_server_is_scrubbed_from_all_grants() -> None:
    model = synced()
    less = want(registration("git", "a", "b"))
    assert shown(model.apply(less)) == [
        ("remove", "server", "time_1f"),
        ("update", "team", "mooring a"),
        ("update", "key", "mooring-abc-a"),
    ]
    assert "time" not in repr(model.observed)


def test_the_last_server_takes_everything_with_it() -> None:
    """R18: nothing stays behind when the last server or workspace is removed."""
    model = synced()
    model.apply(want())
    assert model.observed == Observed()


def test_a_workspace_that_loses_its_last_server_loses_its_key() -> None:
    """An empty grant of a key would mean all of its team's."""
    model = synced()
    model.apply(want(registration("git", "a"), registration("time-1f", "a")))
    assert list(model.teams) == [NAMES.team("a")]
    assert [key.team for key in model.keys.values()] == [NAMES.team("a")]


def test_a_key_that_somebody_deleted_comes_back_with_another_value() -> None:
    """R19: a deleted key may have leaked."""
    model = synced()
    old = model.hashes["a"]
    del model.keys[old]
    (change,) = model.apply(TWO)
    assert (change.action, change.kind, change.fresh) == ("create", "key", True)
    assert model.hashes["a"] != old


def test_a_key_that_somebody_rotated_is_replaced() -> None:
    model = synced()
    key = model.keys.pop(model.hashes["a"])
    model.keys["rotated"] = msgspec.structs.replace(key, hash="rotated")
    assert shown(model.apply(TWO)) == [("remove", "key", "mooring-abc-a"), ("create", "key", "mooring-abc-a")]
    assert "rotated" not in model.keys
    assert model.planned(TWO) == ()


def test_a_key_that_somebody_renamed_gets_its_name_back() -> None:
    model = synced()
    hash = model.hashes["a"]
    model.keys[hash] = msgspec.structs.replace(model.keys[hash], alias="mine")
    (change,) = model.apply(TWO)
    assert (change.action, change.why) == ("update", ("alias",))


def test_a_key_that_somebody_moved_is_replaced() -> None:
    model = synced()
    hash = model.hashes["a"]
    model.keys[hash] = msgspec.structs.replace(model.keys[hash], team="theirs")
    model.apply(TWO)
    assert hash not in model.keys
    assert model.planned(TWO) == ()


def test_a_deleted_team_and_an_emptied_database_get_the_same_keys_again() -> None:
    """R19: agents go on with the keys they hold."""
    for forget in (("teams",), ("teams", "servers")):
        model = synced()
        before = model.observed
        for table in (*forget, "keys"):
            getattr(model, table).clear()
        model.apply(TWO)
        assert model.observed == before


def test_a_removed_team_with_keys_of_others_stays_and_opens_nothing() -> None:
    model = synced()
    theirs = Key("theirs", NAMES.team("b"), "their hash", Grant((NAMES.server("git"),)))
    model.keys[theirs.hash] = theirs
    less = want(registration("git", "a"), registration("time-1f", "a"))
    model.apply(less)
    assert model.teams[NAMES.team("b")].grant == Grant()
    assert [key for key in model.keys.values() if key.team == NAMES.team("b")] == [theirs]
    assert model.planned(less) == ()


def test_a_key_of_a_forgotten_workspace_goes_wherever_it_is() -> None:
    model = Model(Observed(keys=(Key(NAMES.key("gone"), "theirs", "h"),)))
    assert shown(model.apply(want())) == [("remove", "key", "mooring-abc-gone")]


def test_names_of_other_peoples_servers_are_theirs() -> None:
    """R20: collisions are reported; upper and lower case are one to LiteLLM."""
    found = [registration("git", "a"), registration("time-1f", "a"), registration("x", "a")]
    there = (
        Server("1", "GIT", "http://theirs"),
        Server("2", "other", "http://theirs", alias="time_1f"),
        Server(NAMES.server("x"), "y", "http://theirs", fixed=True),
    )
    assert list(clashing(found, Observed(servers=there), NAMES)) == found
    assert clashing(found, synced().observed, NAMES) == ()


IDS = st.sampled_from(["git", "time-1f", "x"])
WORKSPACES = st.sampled_from(["a", "b", "c"])
ANY_NAME = st.sampled_from(["git", "GIT", "time_1f", "x", "theirs"])
GRANTS = st.builds(
    Grant,
    st.lists(IDS.map(NAMES.server) | st.just("their server")).map(lambda ids: tuple(sorted(set(ids)))),
    groups=st.sampled_from([(), ("group",)]),
)
TAGS = st.sampled_from([{}, {"installation": "abc"}, {"installation": "other"}])


def unique(items: list[Any], by: Callable[[Any], object]) -> tuple[Any, ...]:
    return tuple({by(item): item for item in items}.values())


SERVERS = st.lists(
    st.builds(
        Server,
        IDS.map(NAMES.server) | st.sampled_from(["theirs", "mooring-other-git"]),
        ANY_NAME,
        st.sampled_from(["http://mooring/s/git/mcp", "http://theirs"]),
        alias=st.just(""),
        tag=TAGS,
        open=st.booleans(),
        fixed=st.booleans(),
    )
).map(lambda servers: unique(list(unique(servers, lambda each: each.name.casefold())), lambda each: each.id))
TEAMS = st.lists(
    st.builds(Team, WORKSPACES.map(NAMES.team) | st.just("theirs"), st.text(max_size=2), GRANTS, TAGS)
).map(lambda teams: unique(teams, lambda each: each.id))
KEYS = st.lists(
    st.builds(
        Key,
        WORKSPACES.map(NAMES.key) | st.sampled_from(["theirs", "theirs 2"]),
        WORKSPACES.map(NAMES.team) | st.just("theirs"),
        st.sampled_from(["h1", "h2", "h3", "h4"]),
        GRANTS,
    )
).map(lambda keys: unique(list(unique(keys, lambda each: each.alias)), lambda each: each.hash))
FOUND = st.lists(st.tuples(IDS, st.lists(WORKSPACES, min_size=1, unique=True)), unique_by=lambda pair: pair[0]).map(
    lambda pairs: [registration(variant, *sorted(rooms)) for variant, rooms in pairs]
)
HASHES = st.dictionaries(WORKSPACES, st.sampled_from(["h1", "h2", "h3"])).filter(
    lambda hashes: len(set(hashes.values())) == len(hashes)
)


@given(SERVERS, TEAMS, KEYS, FOUND, HASHES)
def test_whatever_is_there_one_sync_is_enough_and_touches_nothing_foreign(
    servers: tuple[Server, ...],
    teams: tuple[Team, ...],
    keys: tuple[Key, ...],
    found: list[Registration],
    hashes: dict[str, str],
) -> None:
    """R17: what others made survives; a second run makes no changes."""
    observed = Observed(servers, teams, keys)
    taken = clashing(found, observed, NAMES)
    right = want(*(each for each in found if each not in taken))
    model = Model(observed, hashes)
    model.apply(right)
    assert model.planned(right) == ()

    ours = {server.id for server in servers if not server.fixed and is_ours(server)}
    assert [model.servers.get(server.id) for server in servers if server.id not in ours] == [
        server for server in servers if server.id not in ours
    ]
    assert [model.teams.get(team.id) for team in teams if team.id == "theirs"] == [
        team for team in teams if team.id == "theirs"
    ]
    foreign = [key for key in keys if key.alias.startswith("theirs") and key.hash not in hashes.values()]
    assert [model.keys.get(key.hash) for key in foreign] == foreign
    granted = {id for team in right.teams for id in team.grant.servers}
    for key in model.keys.values():
        if key not in foreign:
            assert key.grant.servers
            assert set(key.grant.servers) <= granted


def is_ours(server: Server) -> bool:
    return server.tag == {"installation": "abc"} or server.id.startswith("mooring-abc-")
