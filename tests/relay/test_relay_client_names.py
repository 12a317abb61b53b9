"""Which tools suffer from what clients do to names."""

from __future__ import annotations

from mooring.config.plan import Mount, Variant
from mooring.config.plan_servers import Process
from mooring.nouns import Facts, Item, Listing, Problem
from mooring.relay.client_names import problems
from mooring.relay.table import build

FACTS = Facts("legacy", "2025-11-25", b'{"tools":{}}')


def found(servers: dict[str, list[str]], prefix: str | None = None) -> list[Problem]:
    """What is said of a workspace with these servers and their tools."""
    mounts = [Mount("w", name if prefix is None else prefix, name, name) for name in servers]
    variants = {name: Variant(name, name, "{}", "d", Process((name,))) for name in servers}
    listings = {
        name: Listing(FACTS, tools=tuple(Item(tool, b'{"name":"%s"}' % tool.encode()) for tool in tools))
        for name, tools in servers.items()
    }
    return list(problems(build(mounts, variants, listings).tools.values()))


def test_names_that_every_client_takes_are_not_spoken_of() -> None:
    assert found({"a": ["t" * 49], "b": ["x.y"]}) == []


def test_what_gemini_cuts_is_said_once_for_each_server() -> None:
    (problem,) = found({"a": ["ok", "t" * 50, "u" * 80]})
    assert problem.level == "info"
    first = f"a_{'t' * 50}"
    assert problem.message.startswith(f"Gemini CLI cuts the middle out of long names of a: {first}, a_uuu")


def test_tools_that_one_client_cannot_tell_apart_are_named() -> None:
    names = [f"{'m' * 26}{odd}{'n' * 30}" for odd in "12"]
    said = found({"a": names})
    (lost,) = [problem for problem in said if problem.level == "warning"]
    assert lost.message.startswith(f"Gemini CLI reaches one only of a_{names[0]} of a and a_{names[1]} of a: both")


def test_without_a_prefix_names_may_fit_no_model() -> None:
    said = found({"a": ["x.y", "ok", "z" * 115]}, prefix="")
    told = [(problem.level, problem.message.partition(":")[0]) for problem in said]
    assert told == [
        ("warning", "Claude Code leaves out long names of a"),
        ("info", "Codex shortens long names of a"),
        ("info", "Gemini CLI cuts the middle out of long names of a"),
        ("warning", "models take no names like these of a, which clients change or leave out"),
    ]
