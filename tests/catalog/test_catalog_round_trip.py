"""What comes into the catalog goes out of it again: server.json, Docker's server.yaml, and anything unknown in them."""

from __future__ import annotations

import copy
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from docker_files import documents
from hypothesis import given
from hypothesis import strategies as st

from mooring.catalog import docker_yaml, server_json
from mooring.catalog.entry import Entry
from mooring.catalog.residue import applied, residue

REAL = "MOORING_DOCKER_CATALOG"
"""Environment variable with a checkout of https://github.com/docker/mcp-registry."""

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
)


def stored(entry: Entry) -> Entry:
    """As it comes back from the store."""
    return msgspec.json.decode(msgspec.json.encode(entry), type=Entry)


def same(one: Any, two: Any) -> bool:
    """Equal, types of scalars included."""
    return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(two, order="sorted")


@given(json_values, json_values)
def test_the_residue_of_any_two_documents_makes_one_of_the_other(rendered: Any, document: Any) -> None:
    steps = residue(rendered, document)
    back = msgspec.json.decode(msgspec.json.encode(steps), type=tuple[tuple[Any, ...], ...])
    assert same(applied(copy.deepcopy(rendered), back), document)
    assert residue(document, copy.deepcopy(document)) == ()


inputs = st.fixed_dictionaries(
    {},
    optional={
        "description": st.text(max_size=8),
        "isRequired": st.booleans(),
        "isSecret": st.booleans(),
        "format": st.sampled_from(["string", "number", "boolean", "filepath"]),
        "value": st.text(max_size=8),
        "default": st.text(max_size=8) | st.none(),
        "placeholder": st.text(max_size=8),
        "choices": st.lists(st.text(max_size=4), max_size=3) | st.none(),
        "x-unknown": json_values,
    },
)
variables = st.dictionaries(st.sampled_from(["host", "tenant"]), inputs, max_size=2)
named = st.builds(
    lambda name, rest, more: {"name": name, **rest, "variables": more},
    st.text(min_size=1, max_size=6),
    inputs,
    variables,
)
arguments = st.builds(
    lambda kind, rest: {"type": kind, "valueHint": "path", **rest}, st.sampled_from(["positional", "named"]), named
)
transports = st.fixed_dictionaries(
    {"type": st.sampled_from(["stdio", "streamable-http", "sse"])},
    optional={"url": st.text(max_size=8), "headers": st.lists(named, max_size=2), "variables": variables},
)
packages = st.fixed_dictionaries(
    {
        "registryType": st.sampled_from(["npm", "pypi", "oci", "nuget", "mcpb", "maven"]),
        "identifier": st.text(max_size=8),
    },
    optional={
        "version": st.text(max_size=5),
        "registryBaseUrl": st.text(max_size=5),
        "fileSha256": st.just("0" * 64),
        "runtimeHint": st.sampled_from(["npx", "uvx", "docker"]),
        "runtimeArguments": st.lists(arguments, max_size=2),
        "packageArguments": st.lists(arguments, max_size=3),
        "environmentVariables": st.lists(named, max_size=3) | st.none(),
        "transport": transports,
        "_meta": json_values,
    },
)
repositories = st.fixed_dictionaries(
    {"url": st.text(max_size=5), "source": st.just("github")}, optional={"id": st.text(max_size=5)}
)
icons = st.fixed_dictionaries({"src": st.text(max_size=5)}, optional={"sizes": st.lists(st.just("48x48"), max_size=1)})
servers = st.fixed_dictionaries(
    {"name": st.sampled_from(["io.github.a/b", "com.example/Server", "plain"]), "description": st.text(max_size=10)},
    optional={
        "$schema": st.just("https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"),
        "version": st.text(max_size=5),
        "title": st.text(max_size=5),
        "websiteUrl": st.text(max_size=5),
        "repository": repositories,
        "icons": st.lists(icons, max_size=2),
        "packages": st.lists(packages, max_size=2),
        "remotes": st.lists(transports, max_size=2),
        "_meta": st.dictionaries(st.text(max_size=4), json_values, max_size=2),
        "unheardOf": json_values,
    },
)


@given(servers)
def test_every_server_json_comes_back_as_it_was(document: dict[str, Any]) -> None:
    """R33: what an entry declares is kept whole, unknown members included."""
    entry = server_json.parse(copy.deepcopy(document), "official")
    assert same(server_json.render(stored(entry)), document)
    assert stored(entry) == entry


def test_a_server_json_is_understood() -> None:
    document = {
        "name": "com.example/Weather",
        "title": "Weather",
        "description": "Forecasts",
        "version": "1.0.2",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@example/weather",
                "version": "1.0.2",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "named", "name": "--units", "default": "metric"}],
                "environmentVariables": [{"name": "KEY", "isSecret": True, "isRequired": True}],
            }
        ],
        "remotes": [{"type": "streamable-http", "url": "https://weather.example/mcp"}],
    }
    entry = server_json.parse(document, "official")
    assert (entry.id, entry.name, entry.official) == ("official/com.example/weather", "Weather", True)
    assert entry.launches == ("npm", "remote")
    assert entry.needs == ("KEY",)
    assert not server_json.parse({"name": "io.github.somebody/x", "description": ""}, "official").official


@pytest.mark.parametrize("document", [{}, {"name": " "}, {"name": 5}, {"name": "a/b", "packages": [{"version": "1"}]}])
def test_what_is_no_server_json_is_refused_with_the_reason(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"name|registryType"):
        server_json.parse(document, "official")


def test_what_a_registry_says_about_a_server_is_kept() -> None:
    item = {"server": {"name": "a/b"}, "_meta": {server_json.OFFICIAL_META: {"status": "deprecated", "updatedAt": "z"}}}
    entry, listed = server_json.parse_listed(item, "r")
    assert (entry.status, entry.updated_at, listed.is_latest) == ("deprecated", "z", True)
    assert server_json.parse_listed({"server": {"name": "a/b"}}, "r")[0].status == "active"
    with pytest.raises(ValueError, match="no server"):
        server_json.parse_listed({}, "r")


def test_an_entry_of_dockers_catalog_is_rendered_as_server_json_too() -> None:
    """What is understood crosses forms."""
    (_, server, _) = next(iter(documents(1)))
    rendered = server_json.render(docker_yaml.parse(server, "docker"))
    assert rendered["packages"][0]["identifier"] == "docker.io/mcp/made-0"


def test_made_up_entries_of_dockers_catalog_come_back_as_they_were() -> None:
    """R33: image, secrets, settings, command, volumes, network, remotes, headers, logins, one-shot containers."""
    _compare([(server, tools) for _, server, tools in documents()])


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} does not name a checkout of docker/mcp-registry")
def test_the_real_entries_of_dockers_catalog_come_back_as_they_were() -> None:
    """R33"""
    root = Path(os.environ[REAL])
    found = sorted(root.glob("**/server.yaml"))
    assert len(found) > 300
    pairs: list[tuple[Any, Any]] = []
    for file in found:
        tools = file.with_name("tools.json")
        pairs.append(
            (yaml.safe_load(file.read_text()), msgspec.json.decode(tools.read_bytes()) if tools.exists() else None)
        )
    _compare(pairs)


def _compare(pairs: list[tuple[dict[str, Any], list[Any] | None]]) -> None:
    began = time.perf_counter()
    for server, tools in pairs:
        before = copy.deepcopy(server)
        entry = docker_yaml.parse(server, "docker", tools)
        there = {"server.yaml": before} if tools is None else {"server.yaml": before, "tools.json": tools}
        assert same(docker_yaml.render(stored(entry)), there)
        assert server == before
        assert entry.id == f"docker/{before['name'].lower()}"
    assert time.perf_counter() - began < 5 * len(pairs) / 328 * 4  # 5 s for 328, and a machine under load


def test_an_entry_of_dockers_catalog_needs_a_name() -> None:
    with pytest.raises(ValueError, match="name is empty"):
        docker_yaml.parse({"name": " "}, "docker")


def test_docker_images_keep_their_host() -> None:
    """R33: an image on another registry is pulled from there."""
    assert docker_yaml.full_image("mcp/sqlite") == "docker.io/mcp/sqlite"
    assert docker_yaml.full_image("ghcr.io/a/b:1") == "ghcr.io/a/b:1"
    assert docker_yaml.full_image("localhost:5000/x") == "localhost:5000/x"
    assert docker_yaml.full_image("alpine") == "docker.io/library/alpine"


def test_docker_settings_secrets_and_templates_are_understood() -> None:
    entries = {
        entry.own_name: entry for entry in (docker_yaml.parse(server, "docker") for _, server, _ in documents(8))
    }
    with_config = entries["made-2"]
    assert with_config.needs == ("API_KEY", "host")
    variables = {variable.name: variable for variable in with_config.packages[0].environment_variables}
    assert (variables["HOST"].value, variables["API_KEY"].is_secret, variables["OTHER"].is_required) == (
        "{host}",
        True,
        False,
    )
    run = entries["made-3"].packages[0]
    assert run.volumes == ("{paths|volume|into}", "cache:/cache")
    assert (run.network, run.user, run.package_arguments[1].value) == ("none", "{user}", "{paths|volume-target|into}")
    assert entries["made-3"].inputs["paths"].format == "list"
    assert entries["made-3"].inputs["inner.url"].is_required is False
    assert entries["made-4"].packages[0].allowed_hosts == ("a.example:443",)
    header = entries["made-5"].remotes[0].headers[0]
    assert (header.value, header.variables["TOKEN"].is_required) == ("Bearer {TOKEN}", True)
    assert entries["made-5"].launches == ("remote",)
    assert entries["made-7"].launches == ()
    assert [tool.name for tool in entries["made-7"].tools] == ["run"]
