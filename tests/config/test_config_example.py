"""The example of the design's section on configuration, word for word."""

from __future__ import annotations

from collections.abc import Callable

from mooring.config.plan import Plan
from mooring.config.plan_servers import Container, Process, Remote, SecretRef
from mooring.config.schema import Loaded

EXAMPLE = """[gateway]
listen = ["127.0.0.1:7420"]      # several allowed; beyond loopback needs keys everywhere
public_url = "http://127.0.0.1:7420"   # what exports and LiteLLM are told
allowed_hosts = []               # besides the listen addresses
idle_timeout = "10m"             # default for every server; 0 = never
start_timeout = "60s"
call_timeout = "5m"
engine = "auto"                  # podman | docker | auto

[mcp_servers.time]               # a process on stdio
command = "uvx"
args = ["mcp-server-time", "--local-timezone", "{tz}"]
defaults = { tz = "UTC" }        # a placeholder without a value is an error
# every kind: enabled, env, secrets, tools = { allow, deny, confirm }, trust, sharing, dialogue, spare, timeouts
# processes: cwd, sandbox, port (then it speaks HTTP; {port} is a free one), transport, path
[mcp_servers.playwright]         # a container
image = "mcr.microsoft.com/playwright/mcp"
port = 8931                      # with a network allow-list nothing is published: reached inside its namespace
pull = "missing"                 # missing | always | never; or dockerfile = "path"
args = ["--isolated"]            # after the image's entry point
volumes = ["notes:/data", "./in:/in:ro"]
network = ["github.com:443"]     # open | none | allow-list
limits = { memory = "1g", pids = 256, cpus = 1.0 }
read_only = true
env = { DEBUG = "0" }
secrets = { TOKEN = { env = "PW_TOKEN" } }
join = { allowed-origins = ";" } # how a list becomes one flag; without it the flag repeats
[mcp_servers.linear]             # a remote
url = "https://mcp.linear.app/mcp"
headers = { X-Team = "docs" }
auth = "oauth"
[mcp_servers.ledger]             # SMCP: credentials over stdin, never in env or argv
command = "postgres-smcp-server"
credentials = { DB_PASS = { keyring = "ledger" } }

[mcp_groups]
office = ["time", "linear"]

[mcp_presets.github-only]
allowed-origins = ["github.com"]

[workspaces.alice]
mcp_servers = ["office", "playwright"]      # names, groups, or "*"
# prefix = ""                               # pass names through unchanged (one mount only)
# anonymous = "loopback"                    # no key needed from this machine; said loudly at start
[workspaces.alice.mcp.playwright]           # kwargs; reserved words: presets, mount = { prefix, tools, sharing }
presets = ["github-only"]
headless = true

[agent_pool]                     # layers for agents: pool, teams, agents
mcp_servers = ["time"]
[teams.docs]
members = ["writer"]
mcp_servers = ["linear"]
[agents.writer]
type = "codex"                   # native | ag_ui | claude_code | codex | acp; plus model, url, command, cwd, prompt, via, confirm, tools
mcp_servers = ["playwright"]
"""  # noqa: E501 -- word for word


def test_the_example_means_what_its_comments_say(planned: Callable[..., Plan]) -> None:
    """R1 R2: servers of every kind, groups, presets, workspaces and agents from one file."""
    plan = planned(EXAMPLE)
    alice = plan.workspaces["alice"]
    assert [(mount.prefix, mount.server) for mount in alice.mounts] == [
        ("time", "time"),
        ("linear", "linear"),
        ("playwright", "playwright"),
    ]
    time, linear, playwright = (plan.variants[mount.variant] for mount in alice.mounts)
    assert time.id == "time"
    assert time.launch == Process(argv=("uvx", "mcp-server-time", "--local-timezone", "UTC"))
    assert time.idle_timeout == 600.0
    assert isinstance(linear.launch, Remote)
    assert linear.launch.auth == "oauth"
    assert playwright.id.startswith("playwright-")
    assert isinstance(playwright.launch, Container)
    assert playwright.launch.args == ("--isolated", "--allowed-origins", "github.com", "--headless")
    assert playwright.launch.network == ("github.com:443",)
    assert playwright.launch.volumes[0] == "notes:/data"
    assert playwright.launch.volumes[1].endswith("/in:/in:ro")
    assert playwright.launch.volumes[1].startswith("/")
    assert (playwright.launch.memory, playwright.launch.pids, playwright.launch.cpus) == ("1g", 256, 1.0)
    assert playwright.launch.secrets == {"TOKEN": SecretRef("env", "PW_TOKEN")}
    assert not [problem for problem in plan.problems if problem.level == "error"]


def test_the_example_says_which_server_nobody_has(planned: Callable[..., Plan]) -> None:
    assert 'no workspace has "ledger"' in [problem.message for problem in planned(EXAMPLE).problems]


def test_the_agents_of_the_example_are_read(loaded: Callable[..., Loaded]) -> None:
    config = loaded(EXAMPLE).config
    assert config.agent_pool.mcp_servers == ("time",)
    assert config.teams["docs"].members == ("writer",)
    assert config.agents["writer"].type == "codex"
    assert config.mcp_servers["ledger"].credentials is not None  # type: ignore[union-attr]
