"""What LiteLLM is told about a plan, and what not."""

from __future__ import annotations

from typing import Any

import msgspec

from mooring.config.plan import Gateway, LiteLLM, Mount, Plan, Policy, Rule, ToolRules, Variant, Workspace
from mooring.config.plan_servers import Functions, Process, Remote, SecretRef
from mooring.export.litellm_entries import Names
from mooring.export.litellm_wanted import Registration, registrations, wanted

BASE = "http://mooring:7420"
KEY = SecretRef("env", "KEY")
READ_ONLY = ToolRules(allow=("read_*",))


def variant(id: str, launch: Any = None, **more: Any) -> Variant:
    return Variant(id, id.partition("-")[0], "{}", "0", launch or Process(("run",)), **more)


def plan(variants: list[Variant], via: str = "mooring", prefix: str = "", **mounts: list[Mount]) -> Plan:
    return Plan(
        gateway=Gateway(),
        variants={each.id: each for each in variants},
        workspaces={name: Workspace(name, tuple(mounted)) for name, mounted in mounts.items()},
        litellm=LiteLLM("http://litellm", "http://litellm", KEY, via, alias_prefix=prefix),
    )


def mount(workspace: str, variant: str, **more: Any) -> Mount:
    return Mount(workspace, variant, variant.partition("-")[0], variant, **more)


def told(given: Plan) -> tuple[list[Registration], dict[tuple[str, str], str]]:
    found, skipped = registrations(given, BASE)
    return list(found), {(each.workspace, each.variant): each.reason for each in skipped}


def test_a_variant_of_two_workspaces_is_one_server_at_an_endpoint_of_its_own() -> None:
    given = plan(
        [variant("time-3f2a10")], a=[mount("a", "time-3f2a10")], b=[mount("b", "time-3f2a10", sharing="shared")]
    )
    assert told(given) == (
        [Registration("time-3f2a10", "time_3f2a10", ("a", "b"), f"{BASE}/s/time-3f2a10/mcp")],
        {},
    )


def test_names_carry_the_prefix() -> None:
    (found,), _ = told(plan([variant("time")], prefix="acme_", a=[mount("a", "time")]))
    assert found.name == "acme_time"


def test_two_variants_of_one_name_are_both_left_out() -> None:
    """R20: names are sanitised, collisions reported."""
    given = plan([variant("a-b"), variant("a_b"), variant("c")], w=[mount("w", id) for id in ("a-b", "a_b", "c")])
    found, skipped = told(given)
    assert [each.variant for each in found] == ["c"]
    assert set(skipped) == {("w", "a-b"), ("w", "a_b")}
    assert '"a-b" and "a_b" would all be called "a_b"' in skipped["w", "a-b"]


def test_an_instance_for_each_session_cannot_be_registered() -> None:
    given = plan(
        [variant("x", sharing="session"), variant("y", dialogue="session"), variant("z")],
        a=[mount("a", "x"), mount("a", "y"), mount("a", "z", sharing="session")],
        b=[mount("b", "z")],
    )
    found, skipped = told(given)
    assert [(each.variant, each.workspaces) for each in found] == [("z", ("b",))]
    assert set(skipped) == {("a", "x"), ("a", "y"), ("a", "z")}
    assert "a session for each call" in skipped["a", "x"]


def test_an_instance_for_each_workspace_serves_one_workspace() -> None:
    """R19: nobody is let into another's instance."""
    given = plan([variant("x", sharing="workspace")], a=[mount("a", "x")], b=[mount("b", "x")])
    found, skipped = told(given)
    assert [each.workspaces for each in found] == [("a",)]
    assert 'LiteLLM\'s calls go to that of "a"' in skipped["b", "x"]


def test_a_workspace_with_other_rules_does_not_share_the_entry() -> None:
    """R19: calls are taken for the first workspace, whose rules must be everybody's."""
    given = plan([variant("x")], a=[mount("a", "x")], b=[mount("b", "x", tools=READ_ONLY)], c=[mount("c", "x")])
    found, skipped = told(given)
    assert [each.workspaces for each in found] == [("a", "c")]
    assert 'its rules are not those of "a"' in skipped["b", "x"]


def test_equal_policies_share_an_entry_and_others_do_not() -> None:
    """R19: what a policy is called, and what holds for single keys, makes no difference."""
    read_only = (Rule(tool="write_*"),)
    mounts = {name: [mount(name, "x")] for name in "abc"}
    given = plan([variant("x")], **mounts)
    policies = {"a": Policy("a's", deny=read_only), "b": Policy("b's", deny=read_only), "c": Policy("c's")}
    rooms = {
        name: msgspec.structs.replace(room, policy=policies[name], keys={"ci": Policy(name, concurrency=1)})
        for name, room in given.workspaces.items()
    }
    found, skipped = told(msgspec.structs.replace(given, workspaces=rooms))
    assert [each.workspaces for each in found] == [("a", "b")]
    assert list(skipped) == [("c", "x")]


def test_the_registry_is_nobodys_in_litellm() -> None:
    """R19: it would act on the workspace of the key and not on the caller's."""
    registry = variant("mooring.registry", Functions("mooring.registry"))
    added = variant("io.github.x-time-3f2a10")
    given = plan([registry, added], a=[mount("a", registry.id), mount("a", added.id)])
    found, skipped = told(given)
    assert [each.name for each in found] == ["io_github_x_time_3f2a10"]
    assert skipped == {}


def test_what_cannot_be_started_is_not_offered() -> None:
    found, skipped = told(plan([variant("x", unavailable="it is disabled")], a=[mount("a", "x")]))
    assert found == []
    assert skipped == {("a", "x"): "it cannot be started: it is disabled"}


TOKEN = SecretRef("env", "TOKEN")
REMOTE = Remote("https://remote/mcp", "sse", {"X-Team": "docs"}, auth=TOKEN)


def test_upstream_lets_litellm_call_remotes_itself() -> None:
    """R21: with the remote's own credential."""
    given = plan([variant("r", REMOTE), variant("p")], "upstream", a=[mount("a", "r"), mount("a", "p")])
    remote, process = told(given)[0]
    assert remote == Registration(
        "r", "r", ("a",), "https://remote/mcp", "sse", {"X-Team": "docs"}, secret=TOKEN, direct=True
    )
    assert process.url == f"{BASE}/s/p/mcp"


def test_upstream_goes_through_mooring_where_something_stands_between() -> None:
    """R21: a login of Mooring's, a secret in a header, a rule."""
    remotes = {
        "login": variant("login", Remote("https://remote", auth="oauth")),
        "header": variant("header", Remote("https://remote", headers={"X": "{T}"}, secrets={"T": TOKEN})),
        "rules": variant("rules", REMOTE, tools=READ_ONLY),
        "mounted": variant("mounted", REMOTE),
    }
    rules = {"mounted": READ_ONLY}
    given = plan(
        list(remotes.values()), "upstream", a=[mount("a", id, tools=rules.get(id, ToolRules())) for id in remotes]
    )
    assert [each.url for each in told(given)[0]] == [f"{BASE}/s/{id}/mcp" for id in remotes]
    strict = plan([variant("r", REMOTE)], "upstream", a=[mount("a", "r")])
    strict = msgspec.structs.replace(strict, gateway=Gateway(pins="strict"))
    assert [each.direct for each in told(strict)[0]] == [False]


def test_entries_are_signed_and_carry_no_secret() -> None:
    """R22"""
    found = [Registration("time-1", "time_1", ("a", "b"), "http://x"), Registration("r", "r", ("b",), "http://r")]
    right = wanted(found, Names("abc"), {"time-1": "print"})
    assert [(server.id, server.auth, server.tag) for server in right.servers] == [
        ("mooring-abc-time-1", "bearer_token", {"installation": "abc", "variant": "time-1", "secret": "print"}),
        ("mooring-abc-r", "none", {"installation": "abc", "variant": "r", "secret": ""}),
    ]
    assert [(team.id, team.grant.servers) for team in right.teams] == [
        ("mooring-abc-a", ("mooring-abc-time-1",)),
        ("mooring-abc-b", ("mooring-abc-r", "mooring-abc-time-1")),
    ]
