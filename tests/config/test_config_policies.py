"""Policies and audit settings, from text to the plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mooring.config.plan import Audit, Plan, Policy, Rate, Rule, Telemetry
from mooring.errors import ConfigError

Planned = Callable[..., Plan]
SERVERS = "[mcp_servers.git]\ncommand='git-server'\n[workspaces.w]\nmcp_servers=['git']\n"


def test_a_policy_and_that_of_a_key_reach_the_plan(planned: Planned) -> None:
    """R23"""
    text = """[workspaces.w.policy]
deny = [{ server = "gi*", tool = "push*" }]
confirm = [{ destructive = true }]
rate = { calls = 5, per = "1m" }
concurrency = 2
max_result = 1000
[workspaces.w.keys.bot]
allow = [{ read_only = true }]
"""
    room = planned(SERVERS + text).workspaces["w"]
    name = 'the policy of workspace "w"'
    own = Policy(name, (), (Rule("gi*", "push*"),), (Rule(destructive=True),), Rate(5, 60.0), 2, 1000)
    assert room.policies("") == (own,)
    assert room.policies("bot") == (own, Policy('the policy of key "bot"', allow=(Rule(read_only=True),)))
    assert planned(SERVERS).workspaces["w"].policies("bot") == ()


def test_a_rule_about_a_server_that_does_not_exist_is_an_error_with_its_place(planned: Planned) -> None:
    """R3: it would guard nothing."""
    with pytest.raises(ConfigError, match='no server is called "gti"') as caught:
        planned(SERVERS + '[workspaces.w.policy]\ndeny = [{ server = "git" }, { server = "gti" }]\n')
    assert caught.value.details["path"] == "workspaces.w.policy.deny[1].server"


@pytest.mark.parametrize(
    "text", ["rate = { calls = 0 }", "concurrency = -1", "deny = [{ servr = 'git' }]", "max_result = '1k'", "rat = 1"]
)
def test_what_is_wrong_in_a_policy_is_refused(planned: Planned, text: str) -> None:
    with pytest.raises(ConfigError):
        planned(SERVERS + f"[workspaces.w.policy]\n{text}\n")


def test_audit_settings_reach_the_plan(planned: Planned) -> None:
    text = "[audit]\narguments = [{ server = 'git' }]\nmax_bytes = 100000\nfiles = 2\n"
    assert planned(text + SERVERS).audit == Audit(True, (Rule("git"),), 100_000, 2)
    assert planned(SERVERS).audit == Audit()
    with pytest.raises(ConfigError, match="no server"):
        planned("[audit]\narguments = [{ server = 'gti' }]\n" + SERVERS)


def test_what_a_collector_is_sent_reaches_the_plan_and_nothing_is_the_default(planned: Planned) -> None:
    assert planned(SERVERS).telemetry is None
    assert planned(SERVERS + "[telemetry]\n").telemetry == Telemetry()
    written = '[telemetry]\nendpoint = "https://otel.example/"\nmetrics = false\n'
    assert planned(SERVERS + written).telemetry == Telemetry("https://otel.example", metrics=False)
    with pytest.raises(ConfigError, match="http://"):
        planned(SERVERS + '[telemetry]\nendpoint = "otel:4318"\n')
