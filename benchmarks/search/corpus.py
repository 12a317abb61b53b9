"""What is searched: the starter list, a checkout of Docker's catalog where there is one, and many made-up entries."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import yaml

from mooring.catalog import docker_yaml, own_toml
from mooring.catalog.entry import Entry, Package, ToolNote

SEED = 20261121
_SYLLABLES = [consonant + vowel for consonant in "bcdfghjklmnprst" for vowel in "aeiou"]


def starter() -> list[Entry]:
    """The list that comes with the product."""
    tables = tomllib.loads(files("mooring.catalog").joinpath("starter.toml").read_text("utf-8"))
    return [own_toml.parse(id, table, "starter") for id, table in tables.items()]


def docker(folder: Path) -> list[Entry]:
    """A checkout of Docker's catalog, with the tools that it lists."""
    servers = folder / "servers" if (folder / "servers").is_dir() else folder
    return [_docker_entry(file) for file in sorted(servers.glob("*/server.yaml"))]


def _docker_entry(file: Path) -> Entry:
    tools = file.with_name("tools.json")
    listed = yaml.load(tools.read_text("utf-8"), yaml.CSafeLoader) if tools.exists() else None
    return docker_yaml.parse(yaml.load(file.read_text("utf-8"), yaml.CSafeLoader), "docker", listed)


def invented(count: int) -> Iterator[Entry]:
    """Entries with made-up names, whose texts are mixed from those of the starter list; always the same ones."""
    choose = random.Random(SEED)
    real = starter()
    texts = [sentence for entry in real for sentence in entry.description.split(", ")]
    tools = [tool for entry in real for tool in entry.tools]
    words = sorted({word for entry in real for tag in entry.tags for word in tag.split("-")})
    for number in range(count):
        maker = "".join(choose.choices(_SYLLABLES, k=3))
        subject, like = choose.choice(words), choose.choice(real)
        name = f"{maker}-{subject}-mcp" if number % 3 else f"{subject}-{''.join(choose.choices(_SYLLABLES, k=2))}"
        yield Entry(
            id=f"many/io.github.{maker}/{name}-{number}",
            source="many",
            name=name.replace("-", " ").title(),
            own_name=f"io.github.{maker}/{name}-{number}",
            description=", ".join(choose.sample(texts, 3)),
            categories=like.categories,
            tags=tuple(choose.sample(words, 3)),
            packages=(Package(registry_type="npm", identifier=f"@{maker}/{name}", version="1.0.0"),),
            tools=tuple(ToolNote(name=tool.name, description=tool.description) for tool in choose.sample(tools, 5)),
        )
