"""From an entry and settings to what a launcher is told."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any

import pytest
from docker_files import documents
from hypothesis import given
from hypothesis import strategies as st

from mooring.catalog import docker_yaml, own_toml, server_json
from mooring.catalog.adopt import Adoption, adopt, default_prefix
from mooring.catalog.entry import Entry, Launch
from mooring.catalog.errors import NotLaunchable
from mooring.catalog.template import filled, names
from mooring.config.names import prefix_fault, server_fault
from mooring.config.plan_servers import Container, Process, Remote, SecretRef
from mooring.errors import ConfigError

HALF_SECRET = {"value": "Bearer {K}", "variables": {"K": {"isSecret": True}}}
ALL: tuple[Launch, ...] = ("container", "npm", "pypi", "remote")


def starter(id: str) -> Entry:
    tables = tomllib.loads(files("mooring.catalog").joinpath("starter.toml").read_text("utf-8"))
    return own_toml.parse(id, tables[id], "starter")


def own(**table: Any) -> Entry:
    return own_toml.parse("x/it", table, "x")


def package(kind: str, identifier: str, **more: Any) -> Entry:
    return own(packages=[{"registryType": kind, "identifier": identifier, **more}])


def with_option(kind: str, identifier: str, name: str, value: str | None = None) -> Entry:
    """An entry that asks for an option of the program that starts it."""
    return package(kind, identifier, runtimeArguments=[{"type": "named", "name": name, "value": value}])


def taken(entry: Entry, able: tuple[Launch, ...] = ALL, secrets: tuple[str, ...] = (), **settings: Any) -> Adoption:
    return adopt(entry, settings, able=able, has_secret=secrets.__contains__)


def test_sqlite_runs_as_the_container_that_its_entry_names() -> None:
    """R33: arguments and volumes as the catalog declares them; the prefix is the last segment."""
    found = taken(starter("docker/sqlite"))
    assert (found.server, found.prefix, found.method, found.missing) == ("sqlite", "sqlite", "container", ())
    assert isinstance(found.launch, Container)
    assert (found.launch.memory, found.launch.pids, found.launch.cpus) == ("1g", 256, 1.0)  # as any container here
    assert found.launch.image == "docker.io/mcp/sqlite"
    assert found.launch.args == ("--db-path", "/mcp/db.sqlite")
    assert found.launch.volumes == ("mcp-sqlite:/mcp",)


def test_what_cannot_be_started_here_gives_way_to_what_can() -> None:
    """R33 R39: without an engine npm, PyPI and remotes go on."""
    fetch = starter("docker/fetch")
    assert taken(fetch).method == "container"
    found = taken(fetch, able=("npm", "pypi", "remote"))
    assert isinstance(found.launch, Process)
    assert found.launch.argv == ("uvx", "--from", "mcp-server-fetch", "mcp-server-fetch")
    with pytest.raises(
        NotLaunchable, match=r"runs as container on stdio, which cannot be started here.*mooring doctor"
    ):
        taken(starter("docker/sqlite"), able=("npm",))
    with pytest.raises(NotLaunchable, match="cannot be started by Mooring: it comes as nuget, mcpb"):
        taken(own(packages=[{"registryType": kind, "identifier": "x"} for kind in ("nuget", "mcpb")]))
    with pytest.raises(NotLaunchable, match="it comes as nothing to launch"):
        taken(own())


@pytest.mark.parametrize(
    ("entry", "argv"),
    [
        (package("npm", "@us/it", version="1.2.3"), ("npx", "-y", "@us/it@1.2.3")),
        (package("npm", "it", packageArguments=["a", "b c"]), ("npx", "-y", "it", "a", "b c")),
        (package("pypi", "it", version="1.0"), ("uvx", "--from", "it==1.0", "it")),
        (package("pypi", "it[cli]"), ("uvx", "--from", "it[cli]", "it")),
        (
            package("pypi", "it", runtimeArguments=[{"type": "named", "name": "--with", "value": "mcp<2"}]),
            ("uvx", "--with", "mcp<2", "--from", "it", "it"),
        ),
        (
            package("pypi", "it", runtimeArguments=[{"type": "positional", "value": "it-server"}]),
            ("uvx", "--from", "it", "it-server"),
        ),
        (package("npm", "it", runtimeArguments=[{"type": "named", "name": "-y"}]), ("npx", "-y", "it")),
        (
            package(
                "npm",
                "it",
                packageArguments=[
                    {"type": "named", "name": "--stdio"},
                    {"type": "named", "name": "--port", "default": "80"},
                    {"type": "named", "name": "--to=", "value": "x"},
                    {"type": "named", "name": "--quiet", "format": "boolean", "default": "true"},
                    {"type": "named", "name": "--loud", "format": "boolean", "default": "false"},
                    {"type": "named", "name": "--maybe", "description": "left out when nobody says"},
                    {"type": "positional", "valueHint": "nothing"},
                ],
            ),
            ("npx", "-y", "it", "--stdio", "--port", "80", "--to=x", "--quiet"),
        ),
    ],
)
def test_packages_run_by_npx_and_uvx(entry: Entry, argv: tuple[str, ...]) -> None:
    """R33: npm and PyPI entries run by command; old servers get what they need beside them."""
    launch = taken(entry).launch
    assert isinstance(launch, Process)
    assert launch.argv == argv


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (package("npm", "--registry=https://evil.example"), "no valid npm package"),
        (package("npm", "it; rm -rf /"), "no valid npm package"),
        (package("npm", "it", version="1 --yes"), "no valid version"),
        (package("npm", "file:../x"), "no valid npm package"),
        (package("pypi", "-r evil"), "no valid PyPI package"),
        (package("pypi", "git+https://evil.example"), "no valid PyPI package"),
        (package("oci", "--privileged"), "no valid image"),
        (package("npm", "it", registryBaseUrl="https://evil.example"), "only public registries"),
        (package("npm", "it", registryBaseUrl="https://npmjs.example"), "only public registries"),
        (package("npm", "it", registryBaseUrl="https://org"), "only public registries"),
        (with_option("npm", "it", "--node-options", "x"), "does not pass on"),
        (with_option("pypi", "it", "--from", "it-other"), "another package"),
        (with_option("pypi", "it", "--with", "--index-url=x"), "no valid --with"),
        (with_option("pypi", "it", "--index-url", "x"), "does not pass on"),
        (with_option("oci", "x/y", "--privileged"), "does not pass on"),
        (with_option("oci", "x/y", "--mount", "odd"), "not understood"),
        (package("npm", "it", packageArguments=[{"type": "named", "name": "-k", "isSecret": True}]), "its arguments"),
        (package("npm", "it", environmentVariables={"H": HALF_SECRET}), "only a whole one"),
        (own(remotes=[{"type": "sse", "url": "http://far.example/"}]), "only https"),
        (own(remotes=[{"type": "sse", "url": "https://user@far.example/"}]), "only https"),
    ],
)
def test_what_entries_may_not_ask_for_is_refused(entry: Entry, why: str) -> None:
    """Entries are written by others: they get no options of npx, uvx or the engine, and no secrets into arguments."""
    with pytest.raises(NotLaunchable, match=why):
        taken(entry, secrets=("it.key",))


def test_settings_fill_templates_and_missing_ones_are_named() -> None:
    """R33 R36: what is required is asked for by name, with what is known about it."""
    entry = starter("docker/filesystem")
    (wanted,) = taken(entry).missing
    assert (wanted.name, wanted.format, wanted.secret) == ("paths", "list", False)
    found = taken(entry, paths=["/a", "/b"])
    assert found.missing == ()
    assert isinstance(found.launch, Container)
    assert found.launch.args == ("/a", "/b")
    assert found.launch.volumes == ("/a:/a", "/b:/b")
    assert found.launch.network == "none"
    assert found.settings == {"paths": ["/a", "/b"]}
    as_process = taken(entry, able=("npm",), paths="/a").launch
    assert isinstance(as_process, Process)
    assert as_process.argv[-1] == "/a"


def test_secrets_are_references_and_never_settings() -> None:
    """R33: by name, in the secret store; a missing one says under which name it is wanted."""
    entry = starter("docker/elasticsearch")
    found = taken(entry, url="https://es.example")
    assert [(wanted.name, wanted.secret, wanted.secret_name) for wanted in found.missing] == [
        ("ES_API_KEY", True, "elasticsearch.ES_API_KEY")
    ]
    found = taken(entry, secrets=("elasticsearch.ES_API_KEY",), url="https://es.example")
    assert found.missing == ()
    assert isinstance(found.launch, Container)
    assert found.launch.secrets == {"ES_API_KEY": SecretRef("store", "elasticsearch.ES_API_KEY")}
    assert found.launch.env == {"ES_URL": "https://es.example"}
    with pytest.raises(ConfigError, match=r"ES_API_KEY.*is a secret.*mooring secret set"):
        taken(entry, ES_API_KEY="abc")


def test_optional_secrets_and_settings_that_nobody_gave_are_left_out() -> None:
    found = taken(starter("docker/redis"), host="localhost")
    assert isinstance(found.launch, Container)
    assert found.launch.secrets == {}
    assert found.launch.env == {"REDIS_HOST": "localhost", "REDIS_PORT": "6379", "REDIS_USERNAME": "default"}
    assert found.missing == ()


def test_remotes_send_their_headers() -> None:
    """R33: remote entries connect by URL; secrets in headers stay references."""
    entry = starter("docker/github-official")
    key = "github-official.GITHUB_PERSONAL_ACCESS_TOKEN"
    launch = taken(entry, able=("remote",), secrets=(key,)).launch
    assert launch == Remote(
        url="https://api.githubcopilot.com/mcp/",
        headers={"Authorization": "Bearer {GITHUB_PERSONAL_ACCESS_TOKEN}"},
        secrets={"GITHUB_PERSONAL_ACCESS_TOKEN": SecretRef("store", key)},
    )
    context7 = starter("docker/context7")
    plain = taken(context7).launch
    assert isinstance(plain, Remote)
    assert (plain.headers, plain.secrets) == ({}, {})
    with_key = taken(context7, secrets=("context7.CONTEXT7_API_KEY",)).launch
    assert isinstance(with_key, Remote)
    assert with_key.headers == {"CONTEXT7_API_KEY": "{CONTEXT7_API_KEY}"}
    linear = taken(starter("docker/linear")).launch
    assert isinstance(linear, Remote)
    assert linear.auth == "oauth"


def test_urls_and_engine_options_of_server_json_are_understood() -> None:
    tenant = {"tenant": {"isRequired": True}}
    document = {"name": "a/b", "remotes": [{"type": "sse", "url": "https://{tenant}.example/sse", "variables": tenant}]}
    entry = server_json.parse(document, "r")
    assert [wanted.name for wanted in taken(entry).missing] == ["tenant"]
    assert taken(entry, tenant="acme").launch == Remote(url="https://acme.example/sse", transport="sse")
    options = [
        {"type": "named", "name": "-i"},
        {"type": "named", "name": "-e", "value": "MODE=x"},
        {"type": "named", "name": "-e", "value": "KEY={key}", "variables": {"key": {"isSecret": True}}},
        {"type": "named", "name": "-v", "value": "{data}:/data", "variables": {"data": {"isRequired": True}}},
        {"type": "named", "name": "--mount", "value": "type=bind,src={data},dst=/more,readonly"},
    ]
    image = {"registryType": "oci", "identifier": "ghcr.io/a/b", "version": "2", "runtimeArguments": options}
    launch = taken(
        server_json.parse({"name": "a/b", "packages": [image]}, "r"), secrets=("b.key",), data="/here"
    ).launch
    assert isinstance(launch, Container)
    assert launch.image == "ghcr.io/a/b:2"
    assert launch.env == {"MODE": "x"}
    assert launch.secrets == {"KEY": SecretRef("store", "b.key")}
    assert launch.volumes == ("/here:/data", "/here:/more:ro")


@pytest.mark.parametrize("path", ["relative", "/a:/etc", "/a,ro", ""])
def test_a_setting_cannot_mount_something_else(path: str) -> None:
    with pytest.raises(ConfigError, match="absolute path"):
        taken(starter("docker/filesystem"), paths=[path])


LEVEL = {"format": "string", "choices": ["low", "high"], "value": None}


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("nothing", "x", r'has no setting "nothing". It has: count, deep, level'),
        ("level", "middle", "one of low, high"),
        ("count", "many", "needs to be a number"),
        ("deep", "perhaps", "needs to be true or false"),
        ("level", {"a": 1}, "needs text"),
        ("level", "a\nb", "one line"),
        ("level", "a\0b", "one line"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(name: str, value: Any, why: str) -> None:
    variables = {"level": LEVEL, "count": {"format": "number"}, "deep": {"format": "boolean"}}
    entry = package("npm", "it", environmentVariables=variables)
    with pytest.raises(ConfigError, match=why):
        taken(entry, **{name: value})
    launch = taken(entry, level="low", count=3, deep=True).launch
    assert isinstance(launch, Process)
    assert launch.env == {"level": "low", "count": "3", "deep": "true"}


def test_a_given_value_is_not_looked_at_again() -> None:
    entry = package("npm", "it", environmentVariables={"A": {"default": "{b}", "variables": {"b": {"default": "c"}}}})
    for settings, expected in (({}, "c"), ({"A": "{b} "}, "{b} "), ({"b": "{A}"}, "{A}")):
        launch = taken(entry, **settings).launch
        assert isinstance(launch, Process)
        assert launch.env == {"A": expected}


def test_lists_and_their_defaults() -> None:
    """One text in a variable; a default that is no JSON list is one item."""
    inputs = {"many": {"format": "list", "default": '["a", "b"]'}, "one": {"format": "list", "default": "c"}}
    variables = {"MANY": {"value": "{many}"}, "ONE": {"value": "{one}"}, "OWN": {"format": "list"}}
    arguments = ["{many|into}", {"type": "named", "name": "--of", "value": "{many|into}"}]
    it = {"registryType": "npm", "identifier": "it", "environmentVariables": variables, "packageArguments": arguments}
    launch = taken(own(inputs=inputs, packages=[it]), OWN=["x", "y"]).launch
    assert isinstance(launch, Process)
    assert launch.env == {"MANY": "a,b", "ONE": "c", "OWN": "x,y"}
    assert launch.argv[3:] == ("a", "b", "--of", "a", "--of", "b")


@pytest.mark.parametrize(
    ("id", "prefix"),
    [
        ("docker/SQLite", "sqlite"),
        ("npm/@a/server-x", "server_x"),
        ("r/io.github.a/b.c-d", "b_c_d"),
        ("x/__", "server"),
    ],
)
def test_the_prefix_is_the_last_segment(id: str, prefix: str) -> None:
    """R33"""
    assert default_prefix(id) == prefix


@given(st.text(max_size=20))
def test_any_id_has_a_prefix_that_is_one(id: str) -> None:
    prefix = default_prefix(id)
    assert prefix_fault(prefix) == ""
    assert not re.search("__", prefix)


def test_every_entry_there_is_can_be_adopted_or_says_why_not() -> None:
    tables = tomllib.loads(files("mooring.catalog").joinpath("starter.toml").read_text("utf-8"))
    entries = [own_toml.parse(id, table, "starter") for id, table in tables.items()]
    for entry in entries:
        found = taken(entry)
        assert server_fault(found.server) == ""
        assert {wanted.name for wanted in found.missing} >= set(entry.needs), entry.id
    for _, server, tools in documents(16):
        entry = docker_yaml.parse(server, "docker", tools)
        if entry.launches:
            taken(entry)


def test_templates() -> None:
    values = {"a": "x", "list": ("1", "2"), "none": ()}
    known = [*values, "absent"]
    assert filled("{a}-{a}", values, known) == ["x-x"]
    assert filled("{list|into}", values, known) == ["1", "2"]
    assert filled("{list|volume|into}", values, known) == ["1:1", "2:2"]
    assert filled("{list}", values, known) == ["1,2"]
    assert filled("{none|into}", values, known) == []
    assert filled("{absent}", values, known) is None
    assert filled("{absent|into}", values, known) is None
    assert filled("{absent|or:y}", values, known) == ["y"]
    assert filled("{absent|or:[]|into}", values, known) == []
    assert filled('{"json": "{unknown}"}', values, known) == ['{"json": "{unknown}"}']
    assert names("{a|x}{b}{3}") == ["a", "b"]


@given(st.text(), st.text())
def test_a_value_is_never_expanded(template: str, value: str) -> None:
    assert filled("{a}" + template.replace("{", ""), {"a": value}, ["a"]) == [value + template.replace("{", "")]
