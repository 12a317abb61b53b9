"""What ``check`` prints."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import Functions, Launch, Plugin, SecretRef
from mooring.config.report import DIALOGUE_OFF, check
from mooring.config.resolve import resolve
from mooring.config.schema import Loaded
from mooring.nouns_check import CheckReport, MountRow

TEXT = """
[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]
env = { PLAIN = "1" }
secrets = { TOKEN = { env = "TIME_TOKEN" } }
[mcp_servers.box]
image = "img"
dialogue = "session"
[mcp_servers.far]
url = "https://far"
headers = { X = "y" }
auth = { store = "far" }
[mcp_servers.plug]
plugin = "p"
[mcp_servers.mine]
command = "m"
sharing = "workspace"
[workspaces.a]
mcp_servers = ["*"]
[workspaces.a.mcp.time]
tz = "UTC"
[workspaces.b]
mcp_servers = ["time", "mine"]
[workspaces.b.mcp.time]
tz = "UTC"
"""


def report(loaded: Loaded, fingerprint: Callable[[SecretRef], str | None] = lambda _: "1") -> CheckReport:
    def unsupported(launch: Launch) -> str:
        return "no plugins here" if isinstance(launch, Plugin) else ""

    return check(resolve(loaded, fingerprint=fingerprint, unsupported=unsupported), loaded)


def test_the_report_shows_commands_environment_and_who_shares(loaded: Callable[..., Loaded]) -> None:
    """R6: instances, ids and flags with secrets masked, nothing started."""
    made = report(loaded(TEXT))
    assert made.ok
    rows = {row.server: row for row in made.variants}
    time = rows["time"]
    assert time.command == ("uvx", "mcp-server-time", "--tz", "UTC")
    assert time.env == {"PLAIN": "1", "TOKEN": "<env TIME_TOKEN>"}
    assert time.shared_by == ("a", "b")
    assert len(time.instance_keys) == 1
    assert time.instance_keys[0].startswith(f"{time.id}@")
    assert [key.partition(" ")[2] for key in rows["mine"].instance_keys] == ["w:a", "w:b"]
    assert rows["box"].instance_keys[0].endswith(" s:<session>")
    assert rows["box"].command == ("img",)
    assert (rows["far"].command, rows["far"].env) == (("https://far",), {"X": "y", "Authorization": "<store far>"})
    assert rows["plug"].unavailable == "no plugins here"
    assert made.mounts[-1] == MountRow("b", "mine", "mine", "mine", "workspace")
    assert msgspec.json.decode(msgspec.json.encode(made), type=CheckReport) == made


def test_the_report_says_where_dialogue_is_off(loaded: Callable[..., Loaded]) -> None:
    rows = {row.server: row.dialogue for row in report(loaded(TEXT)).variants}
    assert rows == {"time": DIALOGUE_OFF, "mine": DIALOGUE_OFF, "box": "", "far": "", "plug": ""}


def test_a_missing_secret_makes_the_report_not_ok(loaded: Callable[..., Loaded]) -> None:
    """R22."""
    made = report(loaded(TEXT), lambda _: None)
    assert not made.ok
    assert {problem.level for problem in made.problems} == {"error"}


def test_function_servers_are_shown_too(loaded: Callable[..., Loaded]) -> None:
    plan = Plan(variants={"f": Variant("f", "f", "{}", "d", Functions("f"))})
    (row,) = check(plan, loaded("")).variants
    assert (row.command, row.env, row.kind) == (("f",), {}, "functions")
