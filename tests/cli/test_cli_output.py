"""What a verb looks like on a terminal, in a pipe, and when it is misspelt; and what it costs to load."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mooring.cli import masking, output, reference
from mooring.cli.main import VERBS, cli

Run = Callable[..., Any]
DOCS = Path(__file__).parents[2] / "docs" / "cli.md"


def on_terminal(*arguments: str, typed: bytes = b"", **environment: str) -> tuple[int, str]:
    """Run ``mooring`` on a pseudo-terminal; exit code, and all that is seen."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "mooring", *arguments],
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "NO_COLOR": "", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen, deadline = b"", time.monotonic() + 30
    try:
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if typed and b":" in seen:
                os.write(ours, typed)
                typed = b""
        return process.wait(timeout=max(0.1, deadline - time.monotonic())), seen.decode()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def test_a_terminal_gets_tables_with_headers_and_colours(place: Path) -> None:
    """The same data as in a pipe, for eyes."""
    (place / "mooring.toml").write_text('[mcp_servers.x]\ncommand = "sh"\n')
    code, seen = on_terminal("doctor")
    assert code == 0, seen
    assert "FINDING" in seen
    assert "\x1b[" in seen
    assert "Nothing is wrong." in seen


def test_no_color_means_none_in_messages_either(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """https://no-color.org: tables have no colours then, and no more has the word in front of an error."""
    code, seen = on_terminal("server", "show", "x", NO_COLOR="1")
    assert (code, "mooring: there is no server" in seen, "\x1b[" in seen) == (2, True, False)


def test_a_table_loses_nothing_where_the_terminal_is_narrow(place: Path) -> None:
    """Long words are wrapped, and below 80 columns the terminal breaks the lines: nothing ends in an ellipsis."""
    command = "/opt/" + "Q" * 90
    (place / "mooring.toml").write_text(f'[mcp_servers.files]\ncommand = "{command}"\n')
    code, seen = on_terminal("server", "list", COLUMNS="40")
    assert (code, "\u2026" in seen) == (0, False)
    assert seen.count("Q") == 90
    assert "files" in seen


def test_a_description_that_is_cut_off_says_so() -> None:
    assert output.gist(" First line.\nSecond.") == "First line."
    assert output.gist("word " * 20) == ("word " * 20).strip()
    assert output.gist("word " * 21) == "word " * 18 + "word..."
    assert output.gist("x" * 101) == "x" * 97 + "..."


def test_an_audit_that_has_nothing_to_say_tells_why(place: Path) -> None:
    assert "Nothing was recorded yet." in on_terminal("audit")[1]
    (place / "state").mkdir()
    (place / "state" / "audit.jsonl").write_text('{"ts": 1.0, "event": "key.created"}\n')
    assert "Nothing of what was recorded matches." in on_terminal("audit", "--denied")[1]


@pytest.mark.parametrize("stream", ["<&-", ">&-", "2>&-"])
def test_a_verb_works_with_a_standard_stream_closed(place: Path, stream: str) -> None:
    """Such as under a supervisor; the data may be lost, but nothing fails over it."""
    (place / "mooring.toml").write_text('[mcp_servers.x]\ncommand = "sh"\n')
    shell = f'exec "$0" -m mooring check {stream}'
    done = subprocess.run(
        ["/bin/sh", "-c", shell, sys.executable], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("server\tx" in done.stdout) is (stream != ">&-")


def test_a_secret_is_asked_for_without_echo(place: Path, run: Run) -> None:
    """R22, A8: what is typed is not seen."""
    code, seen = on_terminal("secret", "set", "github", typed=b"hunter2\n")
    assert code == 0, seen
    assert "hunter2" not in seen
    assert "hunter2" in (place / "state" / "secrets.json").read_text()


def test_words_for_people_are_left_out_of_pipes(run: Run) -> None:
    for words in (("server", "list"), ("secret", "list"), ("check",)):
        result = run(*words)
        assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    ("words", "meant"), [(("serv",), "server"), (("tolls",), "tools"), (("server", "lst"), "list")]
)
def test_a_misspelt_verb_names_the_one_that_was_meant(run: Run, words: tuple[str, ...], meant: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.stderr


def test_every_verb_has_help(run: Run) -> None:
    """One line each, not cut off."""
    overview = run("--help")
    assert overview.exit_code == 0
    assert "..." not in overview.stdout.partition("Commands:")[2]
    for verb in VERBS:
        result = run(verb, "--help")
        assert result.exit_code == 0
        assert f"Usage: mooring {verb}" in result.stdout
        assert "..." not in result.stdout.partition("Commands:")[2]


def test_the_reference_is_up_to_date() -> None:
    """Made with: python -m mooring.cli.reference > docs/cli.md"""
    assert DOCS.read_text("utf-8") == reference.reference()


def test_every_verb_is_in_the_reference() -> None:
    assert [name for name in cli.list_commands(None) if f"\n## {name}\n" not in DOCS.read_text("utf-8")] == []  # type: ignore[arg-type]


def test_a_verb_loads_no_more_than_it_needs(place: Path) -> None:
    """No table library for a pipe, nothing of the daemon for a question to it."""
    code = (
        "import sys\n"
        "sys.argv = ['mooring', 'ps', '--no-spawn']\n"
        "from mooring.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 3\n"
        "heavy = {'rich', 'tomlkit', 'keyring', 'sqlite3', 'uvloop', 'watchfiles', 'httptools', 'pluggy', 'difflib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("verb", "module"), [("ps", "mooring.cli.main"), ("up", "uvloop")])
def test_an_interrupt_while_a_verb_is_loaded_ends_it_without_a_traceback(place: Path, verb: str, module: str) -> None:
    """Ctrl-C right after the start; what was started by then goes with it."""
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        f"sys.argv = ['mooring', {verb!r}]\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from mooring.__main__ import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Aborted!\n")


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("run", "--token", "abc", "x"), ("run", "--token", "****", "x")),
        (("run", "--api-key=abc"), ("run", "--api-key=****")),
        (("docker", "-e", "API_KEY=abc", "-e", "MODE=x"), ("docker", "-e", "API_KEY=****", "-e", "MODE=x")),
        (("run", "https://u:p@example.com/"), ("run", "****")),
        (("run", "--token", "--verbose"), ("run", "--token", "--verbose")),
        (("run", "--zone", "UTC", "{token}"), ("run", "--zone", "UTC", "{token}")),
    ],
)
def test_secrets_in_a_command_line_are_masked(argv: tuple[str, ...], shown: tuple[str, ...]) -> None:
    """R22: also those that should not be there."""
    assert masking.argv(argv) == shown


def test_secrets_in_a_definition_are_masked_and_references_are_not() -> None:
    """A22: show (masked)."""
    table = {
        "url": "https://example.com/mcp",
        "auth": "oauth",
        "headers": {"Authorization": "Bearer {TOKEN}", "X-Api-Key": "abc", "X-Team": "docs"},
        "secrets": {"TOKEN": {"store": "token"}},
        "defaults": {"password": "abc", "retries": 3},
        "idle_timeout": 0,
    }
    assert masking.definition(table) == {
        **table,
        "headers": {"Authorization": "Bearer {TOKEN}", "X-Api-Key": "****", "X-Team": "docs"},
        "defaults": {"password": "****", "retries": 3},
    }


def test_a_terminal_does_not_obey_what_servers_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences in descriptions and logs are shown; a pipe gets them as they are."""
    assert output.visible("a\x1b[2Jb\n\x9b") == "a\x1b[2Jb\n\x9b"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert output.visible("a\x1b[2Jb\n\x9b") == "a\u241b[2Jb\n\ufffd"


def test_a_negative_number_of_records_is_refused(run: Run) -> None:
    """Not taken for a fault of Mooring."""
    result = run("audit", "-n", "-1")
    assert (result.exit_code, result.exception.__class__) == (2, SystemExit)
    assert "x>=0" in result.output
