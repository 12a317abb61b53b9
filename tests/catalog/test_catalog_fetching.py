"""Which command gets a package without running it."""

from __future__ import annotations

import pytest

from mooring.catalog.fetching import fetching

NPM = ("--", "node", "--eval", "0")
PYPI = ("python", "-c", "0")


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("npx -y @acme/mcp@1.2 --stdio", ("npx", "-y", "--package=@acme/mcp@1.2", *NPM)),
        ("npx --yes mcp", ("npx", "-y", "--package=mcp", *NPM)),
        ("uvx --from acme-mcp==1.2 acme --port 1", ("uvx", "--from", "acme-mcp==1.2", *PYPI)),
        (
            "uvx --with mcp<2 --python 3.12 --from a b",
            ("uvx", "--with", "mcp<2", "--python", "3.12", "--from", "a", *PYPI),
        ),
        ("uvx acme-mcp --flag", ("uvx", "--from", "acme-mcp", *PYPI)),
        ("uvx --with x acme-mcp", ("uvx", "--with", "x", "--from", "acme-mcp", *PYPI)),
        ("uvx acme-mcp@1.2", ()),
        ("uvx --offline acme-mcp", ()),
        ("uvx --with x", ()),
        ("uvx", ()),
        ("npx mcp", ()),
        ("npx -y --package=other mcp", ()),
        ("npx -y", ()),
        ("/usr/bin/uvx acme-mcp", ()),
        ("python -m server", ()),
    ],
)
def test_a_package_is_got_by_what_runs_it(argv: str, command: tuple[str, ...]) -> None:
    """R33: only where the form of the command is known."""
    assert fetching(argv.split()) == command
