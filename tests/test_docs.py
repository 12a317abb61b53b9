"""What the README and ``docs`` say is so: links, configurations, programs, verbs, and the list of acceptance items.

``python tests/test_docs.py`` writes the last column of ``docs/acceptance.md`` anew.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from mooring.cli.main import VERBS
from mooring.config.load import load
from mooring.config.resolve import resolve
from mooring.testing.daemon import daemon, server

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
ACCEPTANCE = DOCS / "acceptance.md"
LIMIT = 30.0
"""Seconds for one program of the docs."""

LATER = ("containers", "protocol", "registry", "access", "plugins", "agents")
STATUSES = {"covered", "unnamed", *LATER, *(f"part: {later}" for later in LATER)}


class Fence(msgspec.Struct):
    """A fenced block: the words behind the fence, its text, and where it stands."""

    info: str
    text: str
    place: str


def fences(page: Path) -> list[Fence]:
    """The fenced blocks of a page."""
    found: list[Fence] = []
    info: str | None = None
    start, lines = 0, list[str]()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif info is None:
            info, start, lines = line[3:].strip(), number, []
        else:
            found.append(Fence(info, "\n".join(lines) + "\n", f"{page.relative_to(ROOT)}:{start}"))
            info = None
    assert info is None, f"{page}: the block of line {start} has no end"
    return found


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """What can stand behind ``#``, as code hosts make it of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=named)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_is_reached_from_the_index() -> None:
    linked = {
        (DOCS / link.partition("#")[0]).resolve() for link in re.findall(r"\]\(([^)]+)\)", prose(DOCS / "index.md"))
    }
    assert [str(page) for page in PAGES if page.resolve() not in linked and page.name != "index.md"] == []


TOML = [fence for page in PAGES for fence in fences(page) if fence.info == "toml"]


@pytest.mark.parametrize("fence", TOML, ids=lambda fence: fence.place)
def test_every_configuration_is_valid(fence: Fence, tmp_path: Path) -> None:
    """All but those marked as fragments are whole configurations without an error."""
    file = tmp_path / "mooring.toml"
    file.write_text(fence.text)
    plan = resolve(load(file), fingerprint=lambda _: "00", unsupported=lambda _: "")
    assert [problem.message for problem in plan.problems if problem.level == "error"] == []


def test_every_verb_that_is_named_exists() -> None:
    said = [
        (named(page), verb)
        for page in PAGES
        for code in (*re.findall(r"`([^`\n]+)`", prose(page)), *(fence.text for fence in fences(page)))
        for verb in re.findall(r"(?:^|\$ )mooring ([a-z]+)", code, re.M)
    ]
    assert len(said) > 50
    assert [(page, verb) for page, verb in said if verb not in VERBS] == []


def test_every_module_that_is_named_exists() -> None:
    """In what is said to those who change Mooring, and in what the source says about itself."""
    source = ROOT / "src" / "mooring"
    rooms = [folder.name for folder in source.iterdir() if (folder / "__init__.py").exists()]
    named = re.compile(rf"`(?:mooring\.)?({'|'.join(rooms)})\.([a-z_]+)\b(?!\*)")
    missing = [
        (str(file.relative_to(ROOT)), f"{room}.{module}")
        for file in (DOCS / "architecture.md", ROOT / "CONTRIBUTING.md", *source.rglob("*.py"))
        for room, module in named.findall(file.read_text("utf-8"))
        if not any((source / room / f"{module}{ending}").exists() for ending in ("", ".py"))
    ]
    assert missing == []


def test_every_test_that_is_named_exists() -> None:
    names = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    said = [(named(page), name) for page in PAGES for name in re.findall(r"`(test_\w+)`", prose(page))]
    assert len(said) > 10
    assert [(page, name) for page, name in said if name not in names] == []


LIBRARY = DOCS / "use-as-a-library.md"
PROGRAMS = [
    (here, after) for here, after in zip(fences(LIBRARY), fences(LIBRARY)[1:], strict=False) if here.info == "python"
]


@pytest.mark.parametrize(("program", "printed"), PROGRAMS, ids=[program.place for program, _ in PROGRAMS])
async def test_every_program_prints_what_is_said(program: Fence, printed: Fence, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    async with daemon(home, {"echo": server()}, {"default": {"mcp_servers": ["echo"]}}) as running:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(  # nothing else is to happen meanwhile
            [sys.executable, "-c", program.text],
            env={**running.env, "PATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert printed.info == "text"
    assert ran.stdout == printed.text


class Item(msgspec.Struct):
    """One line of the acceptance page."""

    id: str
    what: str
    status: str
    tests: str


def items() -> list[Item]:
    cells = (
        line.strip("|\n").split("|")
        for line in ACCEPTANCE.read_text("utf-8").splitlines()
        if line[:3] in ("| R", "| A")
    )
    return [Item(*(cell.strip() for cell in row)) for row in cells]


def names_in_tests() -> dict[str, list[str]]:
    """Acceptance id to the test files that name it, in the name or docstring of a test."""
    found: dict[str, set[str]] = defaultdict(set)
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                name = "" if isinstance(node, ast.Module) else node.name.replace("_", " ")
                for id in re.findall(r"\b[RA][1-9]\d?\b", f"{name} {ast.get_docstring(node) or ''}"):
                    found[id].add(str(file.relative_to(ROOT / "tests")))
    return {id: sorted(files) for id, files in found.items()}


def test_every_item_has_its_line_and_its_status() -> None:
    """All 41 and all 37, once each."""
    assert [item.id for item in items()] == [*(f"R{n}" for n in range(1, 42)), *(f"A{n}" for n in range(1, 38))]
    assert [item.id for item in items() if item.status not in STATUSES or not item.what] == []


def test_what_is_covered_is_named_by_a_test() -> None:
    known = names_in_tests()
    assert [item.id for item in items() if item.status.startswith(("covered", "part")) and item.id not in known] == []


def test_what_tests_name_is_an_item() -> None:
    assert sorted(names_in_tests().keys() - {item.id for item in items()}) == []


def test_the_tests_of_an_item_name_it() -> None:
    """Made with: python tests/test_docs.py"""
    known = names_in_tests()
    stale = {
        item.id: missing
        for item in items()
        if (missing := set(filter(None, item.tests.split(", "))) - set(known.get(item.id, ())))
    }
    assert stale == {}
    covered = [item for item in items() if item.status.startswith(("covered", "part"))]
    assert [item.id for item in covered if not item.tests] == []


def _write_tests() -> None:
    known = names_in_tests()
    lines = ACCEPTANCE.read_text("utf-8").splitlines()
    rows = {item.id: item for item in items()}
    for number, line in enumerate(lines):
        item = rows.get(line[2:].split(" ")[0]) if line.startswith("| ") else None
        if item is not None:
            shown = item.status.startswith(("covered", "part"))
            tests = ", ".join(known.get(item.id, ())) if shown else ""
            lines[number] = " | ".join(("| " + item.id, item.what, item.status, f"{tests} |" if tests else "|"))
    ACCEPTANCE.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    _write_tests()
