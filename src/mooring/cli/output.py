"""What verbs print: tables and colours for people, plain lines for pipes, JSON for scripts.

Data goes to stdout, what is wrong to stderr; words that only a person needs are said on a terminal alone. Every verb
prints through here; no verb looks at the terminal itself.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any

import click
import msgspec

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
workspace_option = click.option(
    "-w", "--workspace", metavar="NAME", help="The workspace; without it the only one, else default."
)
no_spawn_option = click.option(
    "--no-spawn", is_flag=True, help="Fail (exit 3) when the daemon is not running, instead of starting it."
)

GIST = 100
"""Characters of a description in a table."""


def print_json(data: Any) -> None:
    """Indented JSON; the shapes are those of ``mooring.nouns*`` and ``cli.shapes``."""
    click.echo(msgspec.json.format(msgspec.json.encode(data)))


def visible(text: str) -> str:
    """What a server wrote, for the terminal: escape sequences and other control characters are shown, not obeyed. As
    it is when nothing here is a terminal."""
    return text.translate(_CONTROLS) if sys.stdout.isatty() or sys.stderr.isatty() else text


_CONTROLS = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    **dict.fromkeys(range(127, 160), "\ufffd"),
}


def gist(text: str) -> str:
    """The first line of a description, ``GIST`` characters of it at most; dots stand for words that were left out."""
    line = text.strip().partition("\n")[0]
    return line if len(line) <= GIST else f"{line[: GIST - 3].rpartition(' ')[0] or line[: GIST - 3]}..."


def say(text: str) -> None:
    """A word for the person at the terminal. Scripts hear nothing: they have the exit code."""
    if sys.stdout.isatty():
        click.echo(text)


def warn(text: str) -> None:
    """Something that worked, but not quite, on stderr; also when piped."""
    click.echo(f"{click.style('mooring:', fg='yellow')} {visible(text)}", err=True)


def fail(text: str) -> None:
    """What went wrong, on stderr."""
    click.echo(f"{click.style('mooring:', fg='red')} {visible(text)}", err=True)


def agreed(question: str) -> bool:
    """What a person says to it. Raises UsageError where there is nobody, Abort when somebody interrupts."""
    try:
        return click.confirm(question)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("nobody answered; to approve it without being asked, add --yes") from None


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "", *, heading: str = "", tag: str = ""
) -> None:
    """A table on a terminal; when piped, tab-separated lines without a header, each beginning with ``tag`` if there is
    one (it tells the tables of one verb apart). ``empty`` is said when there is nothing."""
    cells = [[_shown(cell) for cell in row] for row in rows]
    if not cells:
        if empty:
            say(empty)
    elif sys.stdout.isatty():
        _draw(columns, cells, heading)
    else:
        for row in cells:
            click.echo("\t".join(" ".join(cell.split()) for cell in ((tag, *row) if tag else row)))


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]], heading: str) -> None:
    """Columns that are empty throughout are left out."""
    from rich.console import Console  # costs more than the rest of a verb together
    from rich.table import Table
    from rich.text import Text

    title = Text(f"\n{heading}", style="bold underline") if heading else None
    used = [any(column) for column in zip(*cells, strict=True)]
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in compress(columns, used):
        table.add_column(name, overflow="fold")  # wrapped, never cut off: names and commands are there to be copied
    for row in cells:
        table.add_row(*(Text(visible(cell), style=_STYLES.get(cell, "")) for cell in compress(row, used)))
    console = Console()
    console.width = max(console.width, _NARROWEST)
    console.print(table)


_NARROWEST = 80
"""Columns of a table at least; a terminal that has fewer breaks its lines itself, which reads better than a column of
single letters."""

_STYLES = {
    "ready": "green",
    "ok": "green",
    "starting": "yellow",
    "warning": "yellow",
    "backoff": "red",
    "error": "red",
    "stopped": "dim",
    "disabled": "dim",
}
"""Cells that are one of these words."""


def _shown(cell: object) -> str:
    if cell is None:
        return ""
    if isinstance(cell, tuple | list):
        return ", ".join(str(part) for part in cell)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return str(cell)


def ago(seconds: float | None) -> str:
    """A duration as people say it: 42s, 7m, 3h, 2d."""
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def size(bytes: int | None) -> str:
    """An amount of memory as people say it: 512K, 34M, 1.2G."""
    if bytes is None:
        return ""
    if bytes >= 1024**3:
        return f"{bytes / 1024**3:.1f}G"
    return f"{bytes / 1024**2:.0f}M" if bytes >= 1024**2 else f"{bytes / 1024:.0f}K"


def until(at: float | None) -> str:
    """How long until an epoch second."""
    return "" if at is None else f"in {ago(max(0.0, at - time.time()))}"
