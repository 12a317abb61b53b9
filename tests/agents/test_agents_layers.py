"""Agent pool, teams, agent and session as one workspace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.agents import layers
from mooring.cli.main import cli
from mooring.config import decode, references
from mooring.config.load import load
from mooring.config.plan import Plan
from mooring.config.plan_servers import Process, Remote
from mooring.config.resolve import resolve
from mooring.config.schema import Config, Session
from mooring.config.schema_agents import Layer
from mooring.errors import ConfigError

SERVERS = """
[mcp_servers]
time = { command = "t" }
git = { command = "g", args = ["{root}"], defaults = { root = "/r" } }
web = { url = "https://web.example/mcp" }
old = { url = "https://old.example/sse", transport = "sse" }
safe = { command = "s", credentials = {} }
keyed = { command = "k", secrets = { TOKEN = { env = "T" } } }
logged = { url = "https://l.example/mcp", auth = "oauth" }
boxed = { image = "i" }
caged = { command = "c", sandbox = true }
ported = { command = "p", port = 9000 }
placed = { command = "w", args = ["{workspace}"] }
sieved = { command = "f", tools = { deny = ["rm"] } }
off = { command = "o", enabled = false }
"""


def planned(text: str, folder: Path, sessions: dict[str, Session] | None = None) -> Plan:
    """The plan of a configuration."""
    file = folder / "mooring.toml"
    file.write_text(SERVERS + text)
    loaded = msgspec.structs.replace(load(file), sessions=sessions or {})
    return resolve(loaded, fingerprint=lambda ref: "x", unsupported=lambda launch: "")


def ways(plan: Plan, agent: str = "a") -> dict[str, str]:
    """Server to its way."""
    return {row.server: row.way for row in plan.agents[f"agent/{agent}"].servers}


def test_each_layer_adds_its_servers_in_order(tmp_path: Path) -> None:
    """A23"""
    text = """
    [agent_pool]
    mcp_servers = ["time"]
    [teams.docs]
    members = ["a"]
    mcp_servers = ["git", "time"]
    [teams.other]
    members = []
    mcp_servers = ["old"]
    [agents.a]
    type = "codex"
    mcp_servers = ["web"]
    [agents.b]
    type = "acp"
    command = "b"
    """
    plan = planned(text, tmp_path)
    rows = plan.agents["agent/a"].servers
    assert [(row.server, row.layers) for row in rows] == [
        ("time", ("agent_pool", "teams.docs")),
        ("git", ("teams.docs",)),
        ("web", ("agents.a",)),
    ]
    assert [mount.server for mount in plan.workspaces["agent/a"].mounts] == ["time", "git", "web"]
    assert [mount.server for mount in plan.workspaces["agent/b"].mounts] == ["time"]
    assert plan.teams == {"docs": ("a",), "other": ()}
    assert "default" not in plan.workspaces


def test_the_nearest_layer_wins_and_lists_of_the_others_append(tmp_path: Path) -> None:
    """A23"""
    text = """
    [mcp_presets.wide]
    dirs = ["p"]
    [agent_pool]
    mcp_servers = ["git"]
    mcp.git = { presets = ["wide"], root = "/pool", dirs = ["q"], depth = 1 }
    [teams.docs]
    members = ["a"]
    mcp.git = { root = "/team", depth = 2, mount = { prefix = "team", tools = { deny = ["x"], allow = ["a*"] } } }
    [agents.a]
    type = "codex"
    mcp.git = { root = "/mine", "dirs+" = ["r"], mount = { prefix = "mine", tools = { deny = ["y"] } } }
    """
    plan = planned(text, tmp_path)
    (mount,) = plan.workspaces["agent/a"].mounts
    launch = plan.variants[mount.variant].launch
    assert isinstance(launch, Process)
    assert launch.argv == ("g", "/mine", "--depth", "2", "--dirs", "p", "--dirs", "q", "--dirs", "r")
    assert (mount.prefix, mount.tools.allow, mount.tools.deny) == ("mine", ("a*",), ("x", "y"))


def test_a_prefix_goes_to_the_nearer_layer(tmp_path: Path) -> None:
    """A23"""
    text = """
    [agent_pool]
    mcp_servers = ["time"]
    [agents.a]
    type = "codex"
    mcp_servers = ["git"]
    mcp.git.mount = { prefix = "time" }
    """
    plan = planned(text, tmp_path)
    assert ways(plan) == {"time": "none", "git": "mooring"}
    assert '"git" of agents.a is nearer' in plan.agents["agent/a"].servers[0].why
    assert [mount.server for mount in plan.workspaces["agent/a"].mounts] == ["git"]


def test_a_session_is_the_nearest_layer_and_concerns_nobody_else(tmp_path: Path) -> None:
    """A23 A33"""
    text = """
    [agents.a]
    type = "codex"
    mcp_servers = ["time"]
    [agents.b]
    type = "codex"
    """
    own = Session("a", Layer(mcp_servers=("git",)))
    plan = planned(text, tmp_path, {"agent/a/1": own})
    assert [row.layers for row in plan.agents["agent/a/1"].servers] == [("agents.a",), ("session",)]
    assert [mount.server for mount in plan.workspaces["agent/a"].mounts] == ["time"]
    assert plan.workspaces["agent/b"].mounts == ()


def test_direct_is_for_what_an_agent_can_run_without_a_secret(tmp_path: Path) -> None:
    """A25"""
    plan = planned('[agents.a]\ntype = "codex"\nvia = "direct"\nmcp_servers = ["*"]\n', tmp_path)
    found = ways(plan)
    assert [name for name, way in found.items() if way == "direct"] == ["time", "git", "web"]
    direct = plan.agents["agent/a"].direct
    assert [server.launch for server in direct] == [
        Process(("t",)),
        Process(("g", "/r")),
        Remote("https://web.example/mcp"),
    ]
    mounted = {mount.server for mount in plan.workspaces["agent/a"].mounts}
    assert mounted == {name for name, way in found.items() if way == "mooring"}
    assert mounted.isdisjoint(server.server for server in direct)
    assert not {"time", "git", "web"} & {variant.server for variant in plan.variants.values()}
    why = {row.server: row.why for row in plan.agents["agent/a"].servers}
    assert "SSE" in why["old"]
    assert "stdin" in why["safe"]
    assert "secret" in why["keyed"]
    assert "secret" in why["logged"]
    assert "confines" in why["caged"]


def test_a_way_is_chosen_for_each_server(tmp_path: Path) -> None:
    """A25"""
    text = """
    [agent_pool]
    mcp_servers = ["time", "git", "old"]
    mcp.time.mount = { via = "direct" }
    [agents.a]
    type = "claude_code"
    mcp.old.mount = { via = "direct" }
    [agents.n]
    type = "native"
    model = "m"
    [agents.c]
    type = "acp"
    command = "c"
    confirm = "always"
    """
    plan = planned(text, tmp_path)
    assert ways(plan) == {"time": "direct", "git": "mooring", "old": "direct"}
    assert set(ways(plan, "n").values()) == set(ways(plan, "c").values()) == {"mooring"}


def test_what_an_agent_cannot_be_told_goes_through_mooring(tmp_path: Path) -> None:
    """A25 A26 A28"""
    text = """
    [mcp_servers.slow]
    command = "s"
    timeouts = { call = "1h" }
    [mcp_servers.here]
    command = "h"
    cwd = "/tmp"
    [agent_pool]
    mcp_servers = ["slow", "here"]
    [agents.a]
    type = "claude_code"
    via = "direct"
    [agents.b]
    type = "codex"
    via = "direct"
    """
    plan = planned(text, tmp_path)
    assert set(ways(plan, "a").values()) == {"mooring"}
    assert set(ways(plan, "b").values()) == {"direct"}
    slow, here = plan.agents["agent/b"].direct
    assert slow.call_timeout == 3600.0
    assert here.launch.cwd == "/tmp"


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ('[agents.a]\ntype = "native"\n', "agents.a", "needs model"),
        ('[agents.a]\ntype = "codex"\nurl = "http://x"\n', "agents.a", "url is for agents of type ag_ui"),
        ('[agents.a]\ntype = "codex"\nmcp.git.root = "/x"\n', "agents.a.mcp.git", "in no mcp_servers"),
        ('[agents.a]\ntype = "codex"\nmcp_servers = ["git"]\nmcp.git.mount.prefix = "own"\n', "agents.a", "own"),
        ('[workspaces.w]\nmcp_servers = ["git"]\nmcp.git.mount.via = "direct"\n', "workspaces.w", "for agents"),
    ],
)
def test_what_cannot_be_meant_is_an_error_with_its_place(text: str, path: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        planned(text, tmp_path)
    assert str(caught.value.details["path"]).startswith(path)


_server = st.sampled_from(["s1", "s2", "s3"])
_grant = st.fixed_dictionaries(
    {},
    optional={
        "scalar": st.integers(0, 9),
        "list": st.lists(st.integers(0, 9), max_size=2),
        "mount": st.fixed_dictionaries(
            {},
            optional={
                "prefix": st.sampled_from(["x", "y"]),
                "via": st.sampled_from(["direct", "mooring"]),
                "tools": st.fixed_dictionaries({"deny": st.lists(st.sampled_from(["a", "b"]), max_size=2)}),
            },
        ),
    },
)


@st.composite
def layer(draw: st.DrawFn) -> dict[str, Any]:
    """A layer's table."""
    servers = draw(st.lists(_server, unique=True))
    return {"mcp_servers": servers, "mcp": {name: draw(_grant) for name in servers}}


@st.composite
def configurations(draw: st.DrawFn) -> Config:
    """An agent with a pool and two teams, of which it may be a member."""
    kind = draw(st.sampled_from(["codex", "claude_code", "native"]))
    own = {
        "type": kind,
        "via": draw(st.sampled_from(["direct", "mooring"])),
        **({"model": "m"} if kind == "native" else {}),
    }
    tables: dict[str, Any] = {
        "mcp_servers": {"s1": {"command": "1"}, "s2": {"command": "2", "credentials": {}}, "s3": {"url": "http://3"}},
        "agent_pool": draw(layer()),
        "teams": {name: {**draw(layer()), "members": draw(st.sampled_from([[], ["a"]]))} for name in ("t1", "t2")},
        "agents": {"a": {**draw(layer()), **own}},
    }
    config = decode.config(tables)
    references.check(config)
    return config


@settings(deadline=None)
@given(configurations(), layer())
def test_whatever_the_layers_say_each_server_goes_one_way_and_the_nearest_counts(
    config: Config, session: dict[str, Any]
) -> None:
    """A23 A25"""
    own = Session("a", decode.config({**_bare(config), "agent_pool": session}).agent_pool)
    compiled = layers.compiled(config, own)
    given_layers = layers.layers(config, own)
    named = {server for _, layer in given_layers for server in layer.mcp_servers}
    assert {row.server for row in compiled.rows} == named
    assert len(compiled.rows) == len(named)
    through, direct = set(compiled.workspace.mcp_servers), set(compiled.direct)
    assert not through & direct
    assert through | direct | {row.server for row in compiled.rows if row.way == "none"} == named
    assert "s2" not in direct
    assert config.agents["a"].type != "native" or not direct
    order = [label for label, _ in given_layers]
    for row in compiled.rows:
        assert list(row.layers) == sorted(row.layers, key=order.index)
        said = [layer.mcp[row.server] for _, layer in given_layers if row.server in layer.mcp]
        prefixes = [grant.mount.prefix for grant in said if grant.mount.prefix is not None]
        assert row.prefix == (prefixes[-1] if prefixes else row.server)
        grant = compiled.workspace.mcp.get(row.server) or compiled.direct.get(row.server)
        if grant is not None:
            scalars = [one.kwargs["scalar"] for one in said if "scalar" in one.kwargs]
            assert grant.kwargs.get("scalar") == (scalars[-1] if scalars else None)
            assert set(grant.mount.tools.deny) == {glob for one in said for glob in one.mount.tools.deny}
        if row.way == "none":
            rivals = [other for other in compiled.rows if other.prefix == row.prefix and other.way != "none"]
            assert any(order.index(rival.layers[-1]) > order.index(row.layers[-1]) for rival in rivals)


def _bare(config: Config) -> dict[str, Any]:
    return {"mcp_servers": {"s1": {"command": "1"}, "s2": {"command": "2"}, "s3": {"url": "http://3"}}}


def test_explain_shows_layers_ways_and_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A23"""
    monkeypatch.setenv("MOORING_HOME", str(tmp_path))
    monkeypatch.setenv("T", "a-secret-value")
    text = """
    [agent_pool]
    mcp_servers = ["keyed"]
    [teams.docs]
    members = ["a"]
    [agents.a]
    type = "codex"
    via = "direct"
    mcp_servers = ["web"]
    tools = ["mytools:all"]
    """
    (tmp_path / "mooring.toml").write_text(SERVERS + text)
    shown = CliRunner().invoke(cli, ["agent", "explain", "a", "--json"])
    assert shown.exit_code == 0, shown.output
    report = json.loads(shown.output)
    assert (report["agent"], report["type"], report["workspace"]) == ("a", "codex", "agent/a")
    assert (report["teams"], report["functions"]) == (["docs"], ["mytools:all"])
    keyed, web = report["servers"]
    assert (keyed["layers"], keyed["way"]) == (["agent_pool"], "mooring")
    assert keyed["why"] == "not direct: it needs a secret, and those go into no agent's configuration"
    assert (web["layers"], web["way"], web["why"]) == (["agents.a"], "direct", "the agent's via says so")
    assert "a-secret-value" not in CliRunner().invoke(cli, ["agent", "explain", "a"]).output
    missing = CliRunner().invoke(cli, ["agent", "explain", "zz"])
    assert missing.exit_code == 2
    assert "Agents: a." in missing.output
