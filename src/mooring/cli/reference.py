"""``docs/cli.md``, made from the commands themselves: ``python -m mooring.cli.reference > docs/cli.md``.

Pure; a test compares it with the file.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator

import click

from mooring.cli.main import VERBS, cli

_HEAD = """\
# Command line

Made from the commands by `python -m mooring.cli.reference`; do not edit.

{about}

- `--json` prints data as JSON, always in the same shape. Without it, tables are drawn on a terminal, and lines of
  tab-separated fields without a header when piped. Messages that only a person needs are left out when piped.
- Problems go to stderr. Values of secrets are never printed, except a new key, once.
- Verbs that need the daemon start it in the background when it is not running; `--no-spawn` refuses (exit 3).
- `MOORING_HOME` chooses the installation; without it, the XDG folders do.
"""


def reference() -> str:
    """The whole page."""
    about = " ".join((cli.help or "").split())
    return _HEAD.format(about=about) + "".join(_section(command, names) for names, command in _commands())


def _commands() -> Iterator[tuple[list[str], click.Command]]:
    context = click.Context(cli, info_name="mooring")
    for verb in VERBS:
        command = cli.get_command(context, verb)
        assert command is not None
        yield ["mooring", verb], command
        if isinstance(command, click.Group):
            for name in command.commands:
                yield ["mooring", verb, name], command.commands[name]


def _section(command: click.Command, names: list[str]) -> str:
    context = click.Context(command, info_name=" ".join(names))
    level = "#" * len(names)
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"\n{level} {' '.join(names[1:])}\n", f"\n    {usage}\n", f"\n{_text(command.help or '')}\n"]
    options = [
        f"| `{_cell(record[0])}` | {_cell(record[1])} |\n"
        for parameter in command.params
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    if options:
        parts += ["\n| option | |\n|---|---|\n", *options]
    return "".join(parts)


def _text(text: str) -> str:
    r"""Help as Markdown: paragraphs on one line each, what follows a ``\b`` as it is."""
    shown: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b"):
            shown.append("\n".join(f"  {line}" for line in paragraph.splitlines()[1:]))
        else:
            shown.append(" ".join(paragraph.split()))
    return "\n\n".join(shown)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference())
