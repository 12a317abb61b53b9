"""The list that comes with Mooring, and the form in which people write entries of their own."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from mooring.catalog import own_toml
from mooring.catalog.entry import Entry


@pytest.fixture(scope="module")
def starter() -> dict[str, Entry]:
    tables = tomllib.loads(files("mooring.catalog").joinpath("starter.toml").read_text("utf-8"))
    return {id: own_toml.parse(id, table, "starter") for id, table in tables.items()}


def test_every_starter_entry_says_how_it_is_launched_and_what_it_is_for(starter: dict[str, Entry]) -> None:
    """R33: by image, npm, PyPI or URL."""
    assert len(starter) >= 40
    for entry in starter.values():
        assert entry.launches, entry.id
        assert entry.description.endswith(".")
        assert entry.categories
        assert entry.tools
        assert 0 < entry.popularity <= 100
    assert {launch for entry in starter.values() for launch in entry.launches} == {"container", "npm", "pypi", "remote"}


def test_the_sqlite_entry_is_the_one_that_the_docs_use(starter: dict[str, Entry]) -> None:
    entry = starter["docker/sqlite"]
    (package,) = entry.packages
    assert (entry.name, package.identifier, entry.needs) == ("SQLite", "docker.io/mcp/sqlite", ())
    assert [argument.value for argument in package.package_arguments] == ["--db-path", "/mcp/db.sqlite"]
    assert package.volumes == ("mcp-sqlite:/mcp",)


def test_no_starter_entry_fixes_a_secret_and_every_placeholder_is_a_setting(starter: dict[str, Entry]) -> None:
    import re

    for entry in starter.values():
        for package in entry.packages:
            values = (*package.environment_variables, *package.package_arguments)
            assert not [value for value in values if value.is_secret and value.value]
            texts = (*(value.value or "" for value in values), *package.volumes)
            named = {name for text in texts for name in re.findall(r"\{(\w+)", text)}
            assert named <= entry.inputs.keys(), entry.id


def test_an_own_entry_is_written_short_and_comes_back_whole(starter: dict[str, Entry]) -> None:
    table: dict[str, Any] = {
        "description": "Ours.",
        "packages": [
            {
                "registryType": "npm",
                "identifier": "@us/it",
                "packageArguments": ["--quiet", {"type": "named", "name": "--to", "isRequired": True}],
                "environmentVariables": {"KEY": {"isSecret": True, "isRequired": True}},
            }
        ],
        "tools": {"go": "Goes"},
    }
    entry = own_toml.parse("it", table, "ours")
    assert (entry.id, entry.name, entry.source) == ("ours/it", "it", "ours")
    assert entry.needs == ("KEY", "--to")
    assert [tool.name for tool in entry.tools] == ["go"]
    for one in (*starter.values(), entry):
        assert own_toml.parse(one.id, own_toml.render(one), one.source) == one


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"packges": []}, "unknown key packges"),
        ({"packages": [{"registryType": "npm", "identifier": "x", "args": []}]}, "unknown key args"),
        ({"packages": [{"identifier": "x"}]}, "registryType"),
        ({"description": 5}, "Expected `str`"),
        ({"packages": ["x"]}, "Expected `object`"),
        (
            {"packages": [{"registryType": "npm", "identifier": "x", "environmentVariables": {"A": 1}}]},
            "Expected `object`",
        ),
    ],
)
def test_a_mistake_in_an_own_entry_is_named(table: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        own_toml.parse("it", table, "ours")


def test_an_id_is_in_lower_case() -> None:
    with pytest.raises(ValueError, match="lower case"):
        own_toml.parse("ours/It", {}, "ours")
