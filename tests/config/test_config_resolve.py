"""What a configuration means."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.config import kwargs as kw
from mooring.config.load import load
from mooring.config.plan import Added, CatalogSource, Plan, Variant
from mooring.config.plan_servers import Container, Plugin, Process, Remote, SecretRef, Timeouts
from mooring.config.resolve import resolve
from mooring.config.schema_base import Kwarg
from mooring.errors import ConfigError
from mooring.nouns import InstanceKey

Planned = Callable[..., Plan]
SERVER = '[mcp_servers.s]\ncommand = "cmd"\n'
USED = '[workspaces.w]\nmcp_servers = ["s"]\n'


def only(plan: Plan) -> Variant:
    """The one variant of ``plan``."""
    (variant,) = plan.variants.values()
    return variant


def argv(plan: Plan) -> tuple[str, ...]:
    """What the one process of ``plan`` runs."""
    launch = only(plan).launch
    assert isinstance(launch, Process)
    return launch.argv


# who gets what


def test_without_a_configuration_there_is_one_workspace_and_no_server(planned: Planned) -> None:
    plan = planned("")
    assert plan.workspaces.keys() == {"default"}
    assert plan.workspaces["default"].mounts == ()
    assert plan.variants == {}
    assert plan.gateway.listen == (("127.0.0.1", 7420),)
    assert plan.gateway.public_url == "http://127.0.0.1:7420"


def test_servers_without_any_workspace_are_in_the_default_one(planned: Planned) -> None:
    assert [mount.server for mount in planned(SERVER).workspaces["default"].mounts] == ["s"]


def test_names_groups_and_the_star_are_expanded_in_order_each_once(planned: Planned) -> None:
    """R2 R5: match-all works; order is that of the configuration."""
    text = "".join(f"[mcp_servers.{name}]\ncommand = 'x'\n" for name in "abcd")
    text += "[mcp_groups]\ng = ['c', 'b']\n[workspaces.one]\nmcp_servers = ['d', 'g', 'b']\n"
    plan = planned(text + "[workspaces.all]\nmcp_servers = ['c', '*']\n")
    assert [mount.server for mount in plan.workspaces["one"].mounts] == ["d", "c", "b"]
    assert [mount.server for mount in plan.workspaces["all"].mounts] == ["c", "a", "b", "d"]


def test_equal_kwargs_from_two_workspaces_are_one_variant(planned: Planned) -> None:
    """R7."""
    plan = planned(
        SERVER
        + "".join(f"[workspaces.{name}]\nmcp_servers=['s']\n" for name in "abcd")
        + "[workspaces.a.mcp.s]\nx = 1\ny = 'z'\n[workspaces.b.mcp.s]\ny = 'z'\nx = 1\n[workspaces.c.mcp.s]\nx = 2\n"
    )
    used = {name: workspace.mounts[0].variant for name, workspace in plan.workspaces.items()}
    assert used["a"] == used["b"]
    assert len({used["a"], used["c"], used["d"]}) == 3
    assert used["d"] == "s"
    assert used["a"].startswith("s-")
    assert len(used["a"]) == len("s-") + 6


def test_the_variant_id_survives_an_edit_of_the_definition_and_the_digest_does_not(planned: Planned) -> None:
    """R7 R8: a changed definition is another instance of the same variant."""
    text = SERVER + USED + "[workspaces.w.mcp.s]\nx = 1\n"
    before = only(planned(text))
    for change in ("args = ['a']\n", "env = { A = 'b' }\n", "cwd = '/'\n", "secrets.T = { env = 'T' }\n"):
        after = only(planned(text.replace(SERVER, SERVER + change)))
        assert after.id == before.id
        assert after.digest != before.digest
    assert before.key("w:w") == InstanceKey(before.id, before.digest, "w:w")


def test_limits_and_rules_are_no_part_of_the_digest(planned: Planned) -> None:
    before = only(planned(SERVER + USED))
    after = only(planned(SERVER + "timeouts = { call = 1 }\ntools = { deny = ['x'] }\nspare = 1\n" + USED))
    assert after.digest == before.digest
    assert after != before


def test_rotating_a_secret_changes_the_digest_and_moving_it_does_not(planned: Planned) -> None:
    """R8 R22 A21."""
    text = SERVER + "secrets.T = { env = 'T' }\n" + USED
    one = only(planned(text, fingerprint=lambda _: "1"))
    assert only(planned(text, fingerprint=lambda _: "2")).digest != one.digest
    assert only(planned(text.replace("env = 'T'", "store = 'T'"), fingerprint=lambda _: "1")).digest == one.digest


def test_a_variant_id_that_is_a_server_name_too_is_refused(planned: Planned) -> None:
    taken = kw.variant_id("s", {"x": 1})
    text = (
        SERVER + f"[mcp_servers.{taken}]\ncommand='x'\n[workspaces.w]\nmcp_servers=['*']\n[workspaces.w.mcp.s]\nx=1\n"
    )
    with pytest.raises(ConfigError, match="which is taken; rename it"):
        planned(text)


# kwargs


@pytest.mark.parametrize(
    ("presets", "own", "merged"),
    [
        ([], {}, {}),
        ([{"a": 1}, {"a": 2}], {}, {"a": 2}),
        ([{"a": ("x",)}, {"a": ("y",)}], {}, {"a": ("x", "y")}),
        ([{"a": ("x",)}, {"a": 1}], {}, {"a": 1}),
        ([{"a": ("x",)}], {"a": ("y",)}, {"a": ("y",)}),
        ([{"a": ("x",)}], {"a+": ("y",)}, {"a": ("x", "y")}),
        ([{"a": ("x",)}], {"a+": "y"}, {"a": ("x", "y")}),
        ([{"a": "x"}], {"a+": ("y",)}, {"a": ("x", "y")}),
        ([], {"d+": "y"}, {"d": ("default", "y")}),
        ([], {"n+": "y"}, {"n": ("y",)}),
        ([], {"a+": 2, "a": 1}, {"a": (1, 2)}),
        ([{"d+": 1}], {}, {"d": ("default", 1)}),
    ],
)
def test_presets_come_first_own_values_replace_plus_appends(
    presets: list[dict[str, Kwarg]], own: dict[str, Kwarg], merged: dict[str, Kwarg]
) -> None:
    """R4."""
    assert kw.merge({"d": "default"}, presets, own) == merged


def test_kwargs_that_fill_nothing_are_flags_after_the_args(planned: Planned) -> None:
    """R4 R10: sorted, bare for true, none for false, repeated or joined for lists."""
    text = SERVER + "args = ['{used}', '{']\njoin = { j = ';', e = ',' }\ndefaults = { z = 'd' }\n" + USED
    text += "[workspaces.w.mcp.s]\nused = 'u'\nb = true\nn = false\nl = ['1', '2']\nj = ['1', '2']\ne = []\n"
    text += "f = 1.5\ni = -1\n"
    assert argv(planned(text)) == (
        *("cmd", "u", "{", "--b", "--f", "1.5", "--i", "-1", "--j", "1;2", "--l", "1", "--l", "2", "--z", "d"),
    )


def test_placeholders_fill_every_text_of_a_process(planned: Planned, tmp_path: Path) -> None:
    """R10."""
    text = SERVER + "args = ['--a={a}{b}', '{\"json\": {}}']\nenv = { E = '{a}' }\ncwd = 'd/{a}'\njoin = { l = '+' }\n"
    text += "defaults = { a = 'A', b = true, l = [1, 2] }\n"
    launch = only(planned(text.replace("{b}", "{b}{l}") + USED)).launch
    assert launch == Process(argv=("cmd", "--a=Atrue1+2", '{"json": {}}'), env={"E": "A"}, cwd=str(tmp_path / "d/A"))


def test_a_value_with_braces_is_not_filled_again(planned: Planned) -> None:
    assert argv(planned(SERVER + "args = ['{x}']\ndefaults = { x = '{y}' }\n" + USED)) == ("cmd", "{y}")


@pytest.mark.parametrize(
    ("extra", "path", "message"),
    [
        ("args = ['{x}']\n", "mcp_servers.s.args[0]", 'nothing fills {x}: give x a value .* workspace "w"'),
        ("env = { A = '{x}' }\n", "mcp_servers.s.env.A", "nothing fills {x}"),
        ("args = ['{port}']\n", "mcp_servers.s.args[0]", "set port"),
        ("args = ['{x}']\ndefaults = { x = [1] }\n", "mcp_servers.s.args[0]", "a list cannot fill {x}"),
        (
            "args = ['{workspace}']\ndefaults = { workspace = 'x' }\n",
            "mcp_servers.s.defaults.workspace",
            "needs another",
        ),
        ("args = ['{T}']\nsecrets.T = { env = 'T' }\n", "mcp_servers.s", "{T} is a secret"),
    ],
)
def test_a_placeholder_that_cannot_be_filled_is_an_error(planned: Planned, extra: str, path: str, message: str) -> None:
    """R10 R22."""
    with pytest.raises(ConfigError, match=message) as error:
        planned(SERVER + extra + USED)
    assert error.value.details["path"] == path
    assert error.value.details["line"]


def test_built_in_names_are_free_where_they_are_not_used(planned: Planned) -> None:
    assert argv(planned(SERVER + USED + "[workspaces.w.mcp.s]\nport = 8080\n")) == ("cmd", "--port", "8080")


def test_a_kwarg_of_a_remote_that_fills_nothing_is_an_error_where_it_was_given(planned: Planned) -> None:
    text = "[mcp_servers.s]\nurl = 'https://x/{a}'\nheaders = { H = '{b}' }\ndefaults = { a = 'A', b = 'B' }\n" + USED
    assert only(planned(text)).launch == Remote(url="https://x/A", headers={"H": "B"})
    with pytest.raises(ConfigError, match='"c" fills nothing') as error:
        planned(text + "[workspaces.w.mcp.s]\nc = 1\n")
    assert error.value.details["path"] == "workspaces.w.mcp.s.c"
    with pytest.raises(ConfigError, match='"c" fills nothing') as error:
        planned(text.replace("b = 'B'", "b = 'B', c = 1"))
    assert error.value.details["path"] == "mcp_servers.s.defaults.c"


SCALARS = st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False))
KWARGS = st.dictionaries(
    st.text(alphabet="abc-", min_size=1, max_size=3).filter(lambda key: key[0] != "-"),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple)),
    max_size=4,
)


@given(KWARGS, st.randoms())
def test_the_order_of_kwargs_does_not_matter(kwargs: dict[str, Kwarg], random: object) -> None:
    """R7."""
    keys = list(kwargs)
    random.shuffle(keys)  # type: ignore[attr-defined]
    shuffled = {key: kwargs[key] for key in keys}
    assert kw.variant_id("s", shuffled) == kw.variant_id("s", kwargs)
    assert kw.flags(shuffled, {}) == kw.flags(kwargs, {})
    assert json.loads(kw.canonical(shuffled)) == json.loads(kw.canonical(kwargs))


@given(KWARGS, KWARGS)
def test_own_values_always_win_and_merging_is_idempotent(preset: dict[str, Kwarg], own: dict[str, Kwarg]) -> None:
    """R4."""
    merged = kw.merge({}, [preset], own)
    assert merged == {**preset, **own}
    assert kw.merge({}, [], merged) == merged


@given(st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)), min_size=1, max_size=4))
def test_workspaces_share_a_variant_exactly_when_their_kwargs_are_equal(
    tmp_path_factory: pytest.TempPathFactory, all_kwargs: list[dict[str, int]]
) -> None:
    """R7 A21."""
    text = SERVER + "".join(
        f"[workspaces.w{number}]\nmcp_servers=['s']\nmcp.s={{{','.join(f'{k}={v}' for k, v in kwargs.items())}}}\n"
        for number, kwargs in enumerate(all_kwargs)
    )
    file = tmp_path_factory.mktemp("c") / "mooring.toml"
    file.write_text(text)
    plan = resolve(load(file), fingerprint=lambda _: "", unsupported=lambda _: "")
    used = [plan.workspaces[f"w{number}"].mounts[0].variant for number in range(len(all_kwargs))]
    for one, first in zip(used, all_kwargs, strict=True):
        for two, second in zip(used, all_kwargs, strict=True):
            assert (one == two) == (first == second)


# sharing


def test_a_server_that_knows_its_workspace_has_a_variant_for_each(planned: Planned) -> None:
    """R10."""
    plan = planned(
        SERVER + "args = ['{workspace}']\n[workspaces.a]\nmcp_servers=['s']\n[workspaces.b]\nmcp_servers=['s']\n"
    )
    found = {name: workspace.mounts[0] for name, workspace in plan.workspaces.items()}
    assert {mount.sharing for mount in found.values()} == {"workspace"}
    assert [plan.variants[mount.variant].launch.argv[1] for mount in found.values()] == ["a", "b"]  # type: ignore[union-attr]


def test_a_server_that_knows_its_session_is_one_for_each_and_keeps_the_placeholder(planned: Planned) -> None:
    plan = planned(SERVER + "sharing = 'workspace'\nargs = ['{session}']\n" + USED)
    assert argv(plan) == ("cmd", "{session}")
    assert only(plan).sharing == "session"


@pytest.mark.parametrize(
    ("server", "mount", "of_variant", "of_mount"),
    [
        ("", "", "shared", "shared"),
        ("sharing = 'session'\n", "", "session", "session"),
        ("sharing = 'session'\n", "sharing = 'shared'", "session", "shared"),
        ("", "sharing = 'workspace'", "shared", "workspace"),
        ("dialogue = 'session'\n", "sharing = 'shared'", "session", "session"),
        ("args = ['{workspace}']\n", "sharing = 'shared'", "workspace", "workspace"),
        ("args = ['{workspace}']\n", "sharing = 'session'", "workspace", "session"),
    ],
)
def test_the_narrowest_need_decides_who_shares(
    planned: Planned, server: str, mount: str, of_variant: str, of_mount: str
) -> None:
    """A21: stateful servers can demand an instance of their own."""
    plan = planned(SERVER + server + USED + f"[workspaces.w.mcp.s]\nmount = {{ {mount} }}\n")
    assert (only(plan).sharing, plan.workspaces["w"].mounts[0].sharing) == (of_variant, of_mount)


# mounts


def test_prefixes_are_names_with_underscores_unless_chosen(planned: Planned) -> None:
    """A20."""
    text = "[mcp_servers.a-b]\ncommand='x'\n[mcp_servers.c]\ncommand='x'\n[workspaces.w]\nmcp_servers=['*']\n"
    plan = planned(text + "mcp.c.mount = { prefix = 'd-e', tools = { allow = ['x'] } }\n")
    assert [mount.prefix for mount in plan.workspaces["w"].mounts] == ["a_b", "d_e"]
    assert plan.workspaces["w"].mounts[1].tools.allow == ("x",)


@pytest.mark.parametrize(
    ("workspace", "path", "message"),
    [
        ("mcp_servers = ['a-b', 'a_b']\n", "workspaces.w.mcp_servers", '"a-b" and "a_b" both get the prefix "a_b"'),
        ("mcp_servers = ['a-b', 'a_b']\nprefix = ''\n", "workspaces.w.prefix", "with one server"),
        (
            "mcp_servers = ['a-b', 'a_b']\nmcp.a_b.mount = { prefix = '' }\n",
            "workspaces.w.mcp.a_b.mount.prefix",
            "with one server",
        ),
        ("mcp_servers = ['a-b']\nmcp.a-b.mount = { prefix = 'A' }\n", "workspaces.w.mcp.a-b.mount.prefix", "cannot be"),
    ],
)
def test_prefixes_that_cannot_work_are_errors(planned: Planned, workspace: str, path: str, message: str) -> None:
    """R3 A20."""
    with pytest.raises(ConfigError, match=message) as error:
        planned(f"[mcp_servers.a-b]\ncommand='x'\n[mcp_servers.a_b]\ncommand='x'\n[workspaces.w]\n{workspace}")
    assert error.value.details["path"] == path


@pytest.mark.parametrize("text", ["prefix = ''\n", "mcp.s.mount = { prefix = '' }\n"])
def test_names_of_a_single_server_can_pass_unchanged(planned: Planned, text: str) -> None:
    assert planned(SERVER + USED + text).workspaces["w"].mounts[0].prefix == ""


# what is wrong with a server does not touch the others


def test_a_missing_secret_makes_its_server_unavailable_and_no_other(planned: Planned) -> None:
    """R22 A22: named before start; a warning when optional."""
    text = SERVER + "secrets = { T = { env = 'TOKEN' }, O = { env = 'OPT', optional = true } }\n"
    text += "[mcp_servers.fine]\ncommand='x'\n[workspaces.w]\nmcp_servers=['*']\n"
    plan = planned(text, fingerprint=lambda _: None)
    why = "secret T: <env TOKEN> is missing; set the variable where Mooring is started"
    assert plan.variants["s"].unavailable == why
    assert plan.variants["fine"].unavailable == ""
    assert [(problem.level, problem.path, problem.line) for problem in plan.problems] == [
        ("error", "mcp_servers.s.secrets.T", 3),
        ("warning", "mcp_servers.s.secrets.O", 3),
    ]


def test_a_secret_that_may_not_be_used_says_why(planned: Planned) -> None:
    """A22."""

    def refuse(_: SecretRef) -> str:
        raise ConfigError("others may read it", file="/f")

    plan = planned(SERVER + "credentials.P = { file = '/f' }\n" + USED, fingerprint=refuse)
    assert only(plan).unavailable == "secret P: /f: others may read it"
    assert plan.problems[0].path == "mcp_servers.s.credentials.P"


def test_the_login_of_a_remote_is_a_secret_too(planned: Planned) -> None:
    text = "[mcp_servers.s]\nurl = 'https://x'\nauth = { env = 'T' }\n" + USED
    plan = planned(text, fingerprint=lambda _: None)
    why = "secret authorization: <env T> is missing; set the variable where Mooring is started"
    assert only(plan).unavailable == why
    assert plan.problems[0].path == "mcp_servers.s.auth"
    assert only(planned(text, fingerprint=lambda _: "1")).digest != only(planned(text)).digest


def test_each_secret_is_looked_at_once(planned: Planned) -> None:
    asked: list[SecretRef] = []

    def fingerprint(ref: SecretRef) -> str:
        asked.append(ref)
        return ""

    text = SERVER + "secrets.T = { env = 'T' }\n[mcp_servers.t]\ncommand='x'\nsecrets.T = { env = 'T' }\n"
    planned(text, fingerprint=fingerprint)
    assert asked == [SecretRef("env", "T")]


def test_a_kind_without_launcher_is_unavailable(planned: Planned) -> None:
    plan = planned(
        "[mcp_servers.s]\nimage = 'i'\n" + USED, unsupported=lambda launch: f"no {type(launch).__name__} here"
    )
    assert only(plan).unavailable == "no Container here"


def test_a_disabled_server_keeps_its_place_and_needs_nothing(planned: Planned) -> None:
    text = SERVER + "enabled = false\nargs = ['{missing}']\nsecrets.T = { env = 'T' }\n" + USED
    plan = planned(text, fingerprint=lambda _: pytest.fail("a disabled server needs no secrets"))
    assert only(plan).unavailable == "it is disabled in the configuration"
    assert len(plan.workspaces["w"].mounts) == 1
    assert plan.problems == ()


def test_secrets_that_engines_show_are_said(planned: Planned) -> None:
    text = "[mcp_servers.s]\nimage = 'i'\nsecrets.T = { env = 'T' }\n" + USED
    assert "may use Docker" in planned(text).problems[0].message
    assert planned(text.replace("env = 'T' }", "env = 'T', as = 'file' }")).problems == ()


def test_no_key_on_a_public_address_is_an_error_and_on_loopback_said_aloud(planned: Planned) -> None:
    text = "[workspaces.w]\nanonymous = 'loopback'\n[workspaces.v]\n"
    plan = planned(text)
    assert (plan.workspaces["w"].anonymous, plan.workspaces["v"].anonymous) == (True, False)
    assert [(problem.level, problem.path) for problem in plan.problems] == [("warning", "workspaces.w.anonymous")]
    with pytest.raises(ConfigError, match="every workspace needs keys"):
        planned(text + "[gateway]\nlisten = ['0.0.0.0:7420']\n")


@pytest.mark.parametrize(("listen", "path"), [("['x']", "gateway.listen[0]"), ("[]", "gateway.listen")])
def test_an_address_that_is_none_is_an_error(planned: Planned, listen: str, path: str) -> None:
    with pytest.raises(ConfigError) as error:
        planned(f"[gateway]\nlisten = {listen}\n")
    assert error.value.details["path"] == path


# everything else that reaches the plan


def test_a_server_takes_its_limits_from_itself_then_from_the_gateway(planned: Planned) -> None:
    text = "[gateway]\nidle_timeout = 5\nstart_timeout = 6\ncall_timeout = '7s'\n"
    variant = only(planned(text + SERVER + USED))
    assert (variant.idle_timeout, variant.timeouts.start, variant.timeouts.call) == (5, 6, 7)
    own = "idle_timeout = 0\ntimeouts = { start = 1, call = 2, pull = 3, initialize = 4, discover = 5, close = 6 }\n"
    variant = only(planned(text + SERVER + own + USED))
    assert variant.idle_timeout == 0
    limits = variant.timeouts
    assert [limits.start, limits.call, limits.pull, limits.initialize, limits.discover, limits.close] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert type(variant.idle_timeout) is float


def test_a_server_with_port_keeps_the_placeholder_when_it_is_a_process_and_not_in_a_container(planned: Planned) -> None:
    """R9: a process gets a free port at start; inside a container the port is its own."""
    launch = only(planned(SERVER + "port = 9\nargs = ['{port}']\ntransport = 'sse'\n" + USED)).launch
    assert isinstance(launch, Process)
    assert (launch.argv, launch.port, launch.transport, launch.path) == (("cmd", "{port}"), 9, "sse", "/sse")
    launch = only(planned("[mcp_servers.s]\nimage='i'\nport = 9\nargs = ['{port}']\npath = '/x'\n" + USED)).launch
    assert isinstance(launch, Container)
    assert (launch.args, launch.transport, launch.path) == (("9",), "http", "/x")


def test_paths_are_relative_to_the_file_they_stand_in(planned: Planned, tmp_path: Path) -> None:
    text = "[mcp_servers.s]\nimage='i'\ndockerfile='d/Dockerfile'\nsecrets.T={file='~/t'}\n"
    launch = only(planned(text + "volumes=['n:/a', '.:/b', '~/x:/c:ro', '/y:/d']\n" + USED)).launch
    assert isinstance(launch, Container)
    home = str(Path.home())
    assert launch.dockerfile == str(tmp_path / "d/Dockerfile")
    assert launch.volumes == ("n:/a", f"{tmp_path}:/b", f"{home}/x:/c:ro", "/y:/d")
    assert launch.secrets["T"].where == f"{home}/t"
    assert argv(planned("[mcp_servers.s]\ncommand='./run'\n" + USED)) == (str(tmp_path / "run"),)


def test_a_server_of_a_plugin_that_nobody_plugged_in_cannot_be_started(planned: Planned) -> None:
    variant = only(planned("[mcp_servers.s]\nplugin='p'\n" + USED, unsupported=lambda launch: launch.why))
    assert variant.launch == Plugin("p", 'the plugin "p" is not installed')
    assert variant.unavailable == 'the plugin "p" is not installed'


def test_secrets_fill_headers_only_at_connecting(planned: Planned) -> None:
    text = "[mcp_servers.s]\nurl='https://x'\nheaders={A='Token {T}'}\nsecrets.T={env='T'}\n" + USED
    assert only(planned(text)).launch == Remote(
        "https://x", headers={"A": "Token {T}"}, secrets={"T": SecretRef("env", "T")}
    )
    with pytest.raises(ConfigError, match="only headers of a remote"):
        planned(text.replace("https://x", "https://x/{T}"))


def test_credentials_make_a_server_smcp_even_when_empty(planned: Planned) -> None:
    launch = only(planned(SERVER + "credentials = {}\n" + USED)).launch
    assert isinstance(launch, Process)
    assert launch.credentials == {}


def test_another_credential_another_digest(planned: Planned) -> None:
    """A1 A21: rotated, renamed, or as a secret instead; with none, an SMCP server still is another thing."""
    text = SERVER + "credentials.T = { env = 'T' }\n" + USED
    shapes = (
        planned(text, fingerprint=lambda _: "1"),
        planned(text, fingerprint=lambda _: "2"),
        planned(text.replace("credentials.T", "credentials.U"), fingerprint=lambda _: "1"),
        planned(text.replace("credentials", "secrets"), fingerprint=lambda _: "1"),
        planned(SERVER + "credentials = {}\n" + USED),
        planned(SERVER + USED),
    )
    assert len({only(plan).digest for plan in shapes}) == len(shapes)
    assert only(planned(text, fingerprint=lambda _: "1")).digest == only(shapes[0]).digest


def test_a_credential_cannot_be_a_file(planned: Planned) -> None:
    """A1 A22"""
    with pytest.raises(ConfigError, match='credentials go over stdin: as = "file" is for secrets'):
        planned(SERVER + "credentials.T = { env = 'T', as = 'file' }\n" + USED)


def test_the_gateway_and_the_rules_of_a_server_reach_the_plan(planned: Planned) -> None:
    """A19."""
    text = (
        "[gateway]\nlisten=['[::1]:1']\npublic_url='http://x/'\nallowed_hosts=['h']\nmax_instances=2\npins='strict'\n"
    )
    plan = planned(text + SERVER + "trust='trusted'\ntools={allow=['a'],deny=['b'],confirm=['c']}\nspare=1\n" + USED)
    assert (plan.gateway.listen, plan.gateway.public_url, plan.gateway.pins) == ((("::1", 1),), "http://x", "strict")
    variant = only(plan)
    assert (variant.trusted, variant.spare, variant.tools.confirm) == (True, 1, ("c",))
    assert planned("[gateway]\nlisten=['[::1]:1']\n").gateway.public_url == "http://[::1]:1"


# sandboxes


def test_a_sandbox_names_absolute_paths_and_its_network(planned: Planned, tmp_path: Path) -> None:
    plan = planned(
        SERVER
        + "sandbox = { paths = ['data/{workspace}', '~/notes:ro', '/srv/x:ro'], memory = '1g', pids = 9 }\n"
        + "network = ['a.example:443']\n"
        + USED
    )
    launch = only(plan).launch
    assert isinstance(launch, Process)
    assert launch.sandbox is not None
    (data,) = launch.sandbox.writable
    assert data.startswith("/")
    assert data.endswith("/data/w")
    assert [path.startswith("/") for path in launch.sandbox.readable] == [True, True]
    assert launch.sandbox.readable[1] == "/srv/x"
    assert (launch.sandbox.network, launch.sandbox.memory, launch.sandbox.pids) == (("a.example:443",), "1g", 9)
    assert only(plan).sharing == "workspace"


def test_a_sandbox_is_part_of_what_an_instance_is(planned: Planned) -> None:
    """R8: a guard that changes makes another instance."""
    tables = ["", "sandbox = true\n", "sandbox = true\nnetwork = 'none'\n", "sandbox = { paths = ['x'] }\n"]
    assert len({only(planned(SERVER + table + USED)).digest for table in tables}) == len(tables)


def test_an_open_network_in_a_sandbox_is_said(planned: Planned) -> None:
    (problem,) = planned(SERVER + "sandbox = true\n" + USED).problems
    assert (problem.level, problem.path) == ("info", "mcp_servers.s.sandbox")
    assert "open network" in problem.message
    assert planned(SERVER + "sandbox = true\nnetwork = 'none'\n" + USED).problems == ()
    assert planned(SERVER + USED).problems == ()


def test_what_is_added_has_limits_of_the_catalog_and_else_of_the_gateway(planned: Callable[..., Plan]) -> None:
    """R14: the idle timeout is the gateway's; limits of steps are set for all that is added."""
    assert planned("").added == Added(Timeouts(), 600.0)
    plan = planned(
        """
[gateway]
start_timeout = "2m"
idle_timeout = 0
[catalog]
timeouts = { pull = "30m", initialize = "1m" }
"""
    )
    assert plan.added == Added(Timeouts(start=120.0, pull=1800.0, initialize=60.0), 0.0)


def test_sources_of_the_catalog_are_resolved(planned: Callable[..., Plan], tmp_path: Path) -> None:
    """R31: user-defined sources; paths are relative to the file."""
    plan = planned("""
[catalog.sources.own]
kind = "files"
path = "entries"
trusted = true
[catalog.sources.official]
kind = "registry"
url = "https://registry.example"
interval = "6h"
[catalog.sources.docker]
kind = "docker"
enabled = false
""")
    assert plan.catalog == (
        CatalogSource(name="own", kind="files", path=str(tmp_path / "entries"), trusted=True),
        CatalogSource(name="official", kind="registry", url="https://registry.example", interval=21600.0),
        CatalogSource(name="docker", kind="docker", enabled=False),
    )
