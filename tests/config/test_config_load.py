"""Reading files: what is accepted, and what is said about the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mooring.config.load import load
from mooring.config.schema import Loaded
from mooring.config.schema_servers import CommandServer
from mooring.errors import ConfigError

Load = Callable[..., Loaded]
SERVER = '[mcp_servers.time]\ncommand = "uvx"\n'
BOXED = "[mcp_servers.x]\ncommand = 'a'\nsandbox = true\n"

WRONG = [
    # (text, line, path, part of the message)
    ("[gatewy]\n", 1, "gatewy", 'unknown key "gatewy" (did you mean "gateway"?)'),
    ("[gateway]\nlistn = []\n", 2, "gateway.listn", 'did you mean "listen"'),
    ('[gateway]\nengine = "lxc"\n', 2, "gateway.engine", '"auto", "docker", "podman"'),
    ('[gateway]\nlisten = "x"\n', 2, "gateway.listen", "expected a list, got text"),
    ('[gateway]\nlisten = ["a:1",\n 5]\n', 3, "gateway.listen[1]", "expected text, got a whole number"),
    ('[gateway]\nidle_timeout = "ten"\n', 2, "gateway.idle_timeout", "is not a duration"),
    ("[gateway]\nstart_timeout = 0\n", 2, "gateway.start_timeout", "limit of 0"),
    ("[gateway]\nmax_starting = 0\n", 2, "gateway.max_starting", ">= 1"),
    ("[catalog]\nsource = 1\n", 2, "catalog.source", 'did you mean "sources"'),
    ('[catalog.sources.x]\nurl = "https://x"\n', 1, "catalog.sources.x", '"kind" is missing'),
    ('[catalog.sources.x]\nkind = "registry"\n', 1, "catalog.sources.x", "a registry needs its url"),
    ('[catalog.sources.x]\nkind = "files"\n', 1, "catalog.sources.x", "files need a path"),
    ('[catalog.sources.x]\nkind = "docker"\nurl = "ftp://x"\n', 1, "catalog.sources.x", "http:// or https://"),
    ('[catalog.sources.x]\nkind = "docker"\nurl = "https://x"\npath = "y"\n', 1, "catalog.sources.x", "not both"),
    ('[catalog.sources."X y"]\nkind = "files"\n', 1, 'catalog.sources."X y"', "cannot be a name"),
    ("gateway = 3\n", 1, "gateway", "expected a table, got a number"),
    ("gateway = 2020-01-01\n", 1, "gateway", "got a date or time"),
    ("[mcp_servers]\ntime = true\n", 2, "mcp_servers.time", "expected a table, got true or false"),
    ("[mcp_servers]\ntime = []\n", 2, "mcp_servers.time", "expected a table, got a list"),
    ('[mcp_servers]\ntime = "x"\n', 2, "mcp_servers.time", "expected a table, got text"),
    ("[mcp_servers.list]\ncommand = 'x'\n", 1, "mcp_servers.list", "is a verb"),
    ("[mcp_servers.Time]\ncommand = 'x'\n", 1, "mcp_servers.Time", "cannot be a name"),
    ("[mcp_servers.x]\nargs = []\n", 1, "mcp_servers.x", "needs one of command, image, url, plugin"),
    ("[mcp_servers.x]\ndockerfile = 'D'\n", 1, "mcp_servers.x", "the name of the image it makes"),
    ("[mcp_servers.x]\ncommand = 'a'\nurl = 'http://b'\n", 3, "mcp_servers.x.url", "only one of command and url"),
    (
        "[mcp_servers.x]\ncommand = 'a'\n\nvolumes = []\n",
        4,
        "mcp_servers.x.volumes",
        'with image or plugin; "x" has command',
    ),
    ("[mcp_servers.x]\nurl = 'http://a'\nenv = {A='b'}\n", 3, "mcp_servers.x.env", "with command or image or plugin"),
    ("[mcp_servers.x]\nurl = 'ftp://a'\n", 1, "mcp_servers.x", "http:// or https://"),
    ("[mcp_servers.x]\ncommand = 'a'\nenv = { A = 'b', B = 1 }\n", 3, "mcp_servers.x.env.B", "expected text"),
    (
        "[mcp_servers.x]\ncommand = 'a'\n[mcp_servers.x.env]\nA = 'b'\nB = 1\n",
        5,
        "mcp_servers.x.env.B",
        "expected text",
    ),
    ("[mcp_servers.x]\ncommand = 'a'\nenv = { 'A=' = 'b' }\n", 3, 'mcp_servers.x.env."A="', "cannot be a name"),
    ("[mcp_servers.x]\ncommand = 'a'\ntools = { alow = [] }\n", 3, "mcp_servers.x.tools.alow", 'did you mean "allow"'),
    ("[mcp_servers.x]\ncommand = 'a'\nport = 0\n", 3, "mcp_servers.x.port", ">= 1"),
    ("[mcp_servers.x]\ncommand = 'a'\ntransport = 'http'\n", 1, "mcp_servers.x", "needs a port"),
    ("[mcp_servers.x]\ncommand = 'a'\ntransport = 'stdio'\nport = 1\n", 1, "mcp_servers.x", "speaks"),
    ("[mcp_servers.x]\ncommand = 'a'\npath = '/'\n", 1, "mcp_servers.x", "for servers with a port"),
    ("[mcp_servers.x]\ncommand = 'a'\nport = 1\ncredentials = {}\n", 1, "mcp_servers.x", "go over stdin"),
    ("[mcp_servers.x]\nimage = 'a'\npull = 'never'\ndockerfile = 'D'\n", 1, "mcp_servers.x", "is built, not pulled"),
    ("[mcp_servers.x]\nimage = 'a'\nvolumes = ['a:b', '/x']\n", 3, "mcp_servers.x.volumes[0]", "is not a volume"),
    ("[mcp_servers.x]\nimage = 'a'\nnetwork = ['a']\n", 3, "mcp_servers.x.network[0]", "write host:port"),
    ("[mcp_servers.x]\ncommand = 'a'\nnetwork = 'none'\n", 1, "mcp_servers.x", "in a sandbox"),
    (BOXED + "network = ['a']\n", 4, "mcp_servers.x.network[0]", "write host:port"),
    (BOXED + "network = 'some'\n", 4, "mcp_servers.x.network", "network"),
    (BOXED.replace("true", "{ paths = ['a', '/:ro'] }"), 3, "mcp_servers.x.sandbox.paths[1]", "is no sandbox"),
    (BOXED.replace("true", "{ path = ['a'] }"), 3, "mcp_servers.x.sandbox.path", 'did you mean "paths"'),
    (BOXED.replace("true", "{ memory = 'much' }"), 3, "mcp_servers.x.sandbox.memory", ""),
    ("[mcp_servers.x]\nurl = 'http://a'\nsandbox = true\n", 3, "mcp_servers.x.sandbox", "for servers with command"),
    ("[mcp_servers.x]\nimage = 'a'\nlimits = { cpus = -1 }\n", 3, "mcp_servers.x.limits.cpus", ">= 0"),
    ("[mcp_servers.x]\ncommand = 'a'\nsecrets = { T = 'v' }\n", 3, "mcp_servers.x.secrets.T", "expected a table"),
    ("[mcp_servers.x]\ncommand = 'a'\nsecrets = { T = {} }\n", 3, "mcp_servers.x.secrets.T", "exactly one of"),
    ("[mcp_servers.x]\ncommand = 'a'\nsecrets = { T = {env=''} }\n", 3, "mcp_servers.x.secrets.T", "is empty"),
    (
        "[mcp_servers.x]\ncommand='a'\nsecrets = { A = {env='A'}, T = {env='T', as='pipe'} }\n",
        3,
        "mcp_servers.x.secrets.T.as",
        "'pipe' is not one of",
    ),
    ("[mcp_servers.x]\ncommand='a'\nsecrets.T.enw = 'T'\n", 3, "mcp_servers.x.secrets.T.enw", 'did you mean "env"'),
    (
        "[mcp_servers.x]\ncommand='a'\nsecrets={T={env='T'}}\ncredentials={T={env='T'}}\n",
        3,
        "mcp_servers.x.secrets.T",
        "in credentials too",
    ),
    ("[mcp_servers.x]\ncommand='a'\nenv={T='a'}\nsecrets={T={env='T'}}\n", 4, "mcp_servers.x.secrets.T", "in env too"),
    ("[mcp_servers.x]\ncommand='a'\n[mcp_servers.x.defaults]\na = inf\n", 4, "mcp_servers.x.defaults.a", "finite"),
    (
        "[mcp_servers.x]\ncommand='a'\n[mcp_servers.x.defaults]\nmount = 1\n",
        4,
        "mcp_servers.x.defaults.mount",
        "reserved",
    ),
    ("[mcp_presets.p]\n'--x' = 1\n", 2, "mcp_presets.p.--x", "cannot be a name"),
    ("[mcp_presets.p]\nx = { a = 1 }\n", 2, "mcp_presets.p.x", "expected true or false or a whole number"),
    ("[mcp_presets.p]\nx = [1, [2]]\n", 2, "mcp_presets.p.x[1]", "got a list"),
    (SERVER + "[mcp_groups]\ntime = []\n", 4, "mcp_groups.time", "is a server too"),
    (SERVER + "[mcp_groups]\na = ['tim']\n", 4, "mcp_groups.a[0]", 'unknown server "tim" (did you mean "time"?)'),
    (SERVER + "[mcp_groups]\na = []\nb = [\n 'a' ]\n", 6, "mcp_groups.b[0]", "groups hold servers only"),
    (SERVER + "[workspaces.a]\nmcp_servers = ['tme']\n", 4, "workspaces.a.mcp_servers[0]", 'did you mean "time"'),
    (SERVER + "[workspaces.a.mcp.tme]\n", 3, "workspaces.a.mcp.tme", 'unknown server "tme"'),
    (SERVER + "[workspaces.a.mcp.time]\n", 3, "workspaces.a.mcp.time", "is not in mcp_servers"),
    (
        SERVER + "[workspaces.a]\nmcp_servers=['time']\nmcp.time.presets=['p']\n",
        5,
        "workspaces.a.mcp.time.presets[0]",
        'unknown preset "p"',
    ),
    (
        SERVER + "[workspaces.a.mcp.time]\nmount = { prefx = 'a' }\n",
        4,
        "workspaces.a.mcp.time.mount.prefx",
        "did you mean",
    ),
    (SERVER + "[workspaces.a]\nprefix = 'a'\n", 4, "workspaces.a.prefix", '""'),
    (SERVER + "[workspaces.a]\nanonymous = 'yes'\n", 4, "workspaces.a.anonymous", '"loopback"'),
    ("[workspaces.'a/b']\n", 1, 'workspaces."a/b"', "cannot be a name"),
    ("[teams.t]\nmembers = ['a']\n", 2, "teams.t.members[0]", 'unknown agent "a"'),
    ("[agents.a]\nmodel = 'm'\n", 1, "agents.a", '"type" is missing'),
    ("[agents.a]\ntype = 'codx'\n", 2, "agents.a.type", '"codex"'),
]


@pytest.mark.parametrize(("text", "line", "path", "message"), WRONG, ids=[f"{row[2]}: {row[3]}" for row in WRONG])
def test_what_is_wrong_is_named_with_file_line_and_key(
    write: Callable[..., Path], text: str, line: int, path: str, message: str
) -> None:
    """R1 R3: unknown keys, wrong types, missing fields, dangling names: the exact place, and what was meant."""
    file = write(text)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert message in str(error.value)
    assert error.value.facts() == {"kind": "config", "file": str(file), "line": line, "path": path}


@pytest.mark.parametrize(
    ("text", "line"), [("a = \n", 1), ("[a]\nb = 1\nb = 2\n", 3), ("[a\n", 1), ('a = "\\q"\n', 1), ("x = [1,\n2", 2)]
)
def test_text_that_is_not_toml_is_named_with_its_line(write: Callable[..., Path], text: str, line: int) -> None:
    """R1."""
    with pytest.raises(ConfigError, match="not valid TOML") as error:
        load(write(text))
    assert error.value.details["line"] == line


def test_a_file_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mooring.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "mooring.toml")


def test_the_mark_that_windows_editors_put_in_front_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    for file, name in (("mooring.toml", "time"), ("conf.d/x.toml", "other")):
        (tmp_path / file).write_bytes(f"\ufeff[mcp_servers.{name}]\r\ncommand = 'x'\r\n".encode())
    read = load(tmp_path / "mooring.toml")
    assert list(read.config.mcp_servers) == ["time", "other"]
    assert read.place(("mcp_servers", "time")) == (str(tmp_path / "mooring.toml"), 1)


def test_toml_without_a_bottom_is_an_error_and_no_crash(write: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(write("a = " + "[" * 100_000))


def test_no_file_is_the_default_configuration(tmp_path: Path) -> None:
    empty = load(tmp_path / "mooring.toml")
    assert empty.files == (str(tmp_path / "mooring.toml"),)
    assert empty.config.mcp_servers == {}
    assert empty.place(("gateway",)) == (str(tmp_path / "mooring.toml"), None)


def test_included_files_and_conf_d_are_read_in_order(loaded: Load, tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "b.toml").write_text('[mcp_groups]\ng = ["time"]\n')
    (tmp_path / "conf.d" / "a.toml").write_text("[gateway]\nmax_starting = 3\n")
    (tmp_path / "conf.d" / "ignored.txt").write_text("[")
    both = loaded('include = ["more.toml"]\n[gateway]\npins = "strict"\n', more_toml=SERVER)
    assert [Path(name).name for name in both.files] == ["mooring.toml", "more.toml", "a.toml", "b.toml"]
    assert (both.config.gateway.pins, both.config.gateway.max_starting) == ("strict", 3)
    assert both.place(("mcp_servers", "time", "command")) == (str(tmp_path / "more.toml"), 2)
    assert both.place(("mcp_groups", "g", 0)) == (str(tmp_path / "conf.d" / "b.toml"), 2)


def test_defining_a_name_twice_names_both_places(loaded: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"already defined in .*mooring.toml:2") as error:
        loaded('include = ["more.toml"]\n' + SERVER, more_toml="\n\n" + SERVER)
    assert (error.value.details["file"], error.value.details["line"]) == (str(tmp_path / "more.toml"), 3)
    assert error.value.details["path"] == "mcp_servers.time"


@pytest.mark.parametrize("second", ["gateway = 1\n", "[gateway]\npins = 'report'\n"])
def test_the_same_key_of_gateway_in_two_files_is_an_error(loaded: Load, second: str) -> None:
    with pytest.raises(ConfigError, match="already defined"):
        loaded("include = ['more.toml']\n[gateway]\npins = 'strict'\n", more_toml=second)
    with pytest.raises(ConfigError, match=r"already defined|expected a table"):
        loaded("include = ['more.toml']\ngateway = 1\n", more_toml=second)


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("'more.toml'", "include is a list"),
        ("[1]", "include is a list"),
        ("['none.toml']", "there is no file"),
        ("['more.toml', './more.toml']", "included twice"),
    ],
)
def test_an_include_that_cannot_be_followed_is_an_error(loaded: Load, include: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loaded(f"include = {include}\n", more_toml="")


def test_only_the_main_file_includes(loaded: Load) -> None:
    with pytest.raises(ConfigError, match="only the main file"):
        loaded("include = ['more.toml']\n", more_toml="include = []\n")


def test_a_file_of_conf_d_may_be_included_too_and_is_read_once(loaded: Load, tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.toml").write_text(SERVER)
    assert len(loaded("include = ['conf.d/a.toml']\n").files) == 2


def test_texts_stand_in_for_files(write: Callable[..., Path], tmp_path: Path) -> None:
    file = write(SERVER)
    changed = load(file, {str(file): SERVER.replace("uvx", "npx")})
    server = changed.config.mcp_servers["time"]
    assert isinstance(server, CommandServer)
    assert server.command == "npx"
    new = str(tmp_path / "new.toml")
    assert load(Path(new), {new: SERVER}).config.mcp_servers.keys() == {"time"}


def test_secret_references_of_every_kind_are_read(loaded: Load) -> None:
    """A22."""
    text = SERVER + (
        "secrets.A = { env = 'a', optional = true }\nsecrets.B = { file = 'b', as = 'file' }\n"
        "secrets.C = { keyring = 'c' }\nsecrets.D = { command = ['d', 'e'] }\nsecrets.E = { store = 'e' }\n"
    )
    refs = {name: secret.ref for name, secret in loaded(text).config.mcp_servers["time"].secrets.items()}
    assert [str(ref) for ref in refs.values()] == ["<env a>", "<file b>", "<keyring c>", "<command d e>", "<store e>"]
    assert (refs["A"].optional, refs["B"].as_file) == (True, True)
