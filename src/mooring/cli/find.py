"""``mooring find``: servers that could be run, by what they are called or what they are for."""

from __future__ import annotations

import click

from mooring.cli.attached import attached
from mooring.cli.output import gist, json_option, no_spawn_option, print_json, print_table
from mooring.nouns_registry import EntryRow


@click.command()
@click.argument("query", nargs=-1)
@click.option("--category", "categories", multiple=True, metavar="NAME", help="Only of this category; may be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="NAME", help="Only with this tag; may be repeated.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only from this source; may be repeated.")
@click.option("--official", is_flag=True, help="Only by the makers of what they give access to.")
@click.option("--featured", is_flag=True, help="Only those that are recommended.")
@click.option("--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Results at most.")
@json_option
@no_spawn_option
def find(
    query: tuple[str, ...],
    categories: tuple[str, ...],
    tags: tuple[str, ...],
    sources: tuple[str, ...],
    official: bool,
    featured: bool,
    limit: int,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Look for servers in the catalog by name or purpose.

    A name may be misspelt. Without QUERY the best known are shown. Works without a network.
    """
    rows = attached(
        lambda mooring: mooring.find(
            " ".join(query),
            categories=categories,
            tags=tags,
            sources=sources,
            official_only=official,
            featured_only=featured,
            limit=limit,
        ),
        spawn=not no_spawn,
    )
    if as_json:
        print_json(rows)
        return
    print_table(
        ("ID", "NAME", "RUNS AS", "NEEDS", "DESCRIPTION"),
        map(_cells, rows),
        "Nothing was found. More sources: mooring catalog status",
    )


def _cells(row: EntryRow) -> tuple[object, ...]:
    about = f"(deprecated) {row.description}" if row.deprecated else row.description
    return row.id, row.name, row.launch or "not here", row.needs, gist(about)
