"""The helper for servers that take SMCP credentials: real children, spoken to as the text of v0.2 says."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mooring import smcp
from mooring.config.plan import Variant
from mooring.config.plan_servers import Process, Timeouts
from mooring.launch.kept import Keeper
from mooring.launch.process import ProcessLauncher
from mooring.launch.smcp import handshake

LIMIT = 20.0
SERVER = """
import sys
from smcp import credentials
given = credentials({required}, {optional}, {more})
import os
if {raw}:
    os.write(1, repr((given, os.read(0, 100))).encode() + b"\\n")
else:
    print(repr((given, sys.stdin.buffer.readline())), flush=True)
"""


@pytest.fixture
def server(tmp_path: Path):
    """The file is copied beside a server that uses it: it needs nothing else of Mooring."""
    shutil.copy(smcp.__file__, tmp_path / "smcp.py")

    def made(required: object = None, optional: object = None, more: str = "", raw: bool = False) -> list[str]:
        file = tmp_path / "server.py"
        file.write_text(SERVER.format(required=required, optional=optional, more=more, raw=raw))
        return [sys.executable, "-S", str(file)]

    return made


@contextmanager
def child(argv: list[str], **env: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": "/bin", **env}
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout
    assert select.select([process.stdout], [], [], LIMIT)[0], "nothing came"
    return process.stdout.readline()


def told(argv: list[str], *sent: bytes, **env: str) -> tuple[list[bytes], str, int]:
    """Its lines, its stderr and its exit code when it is sent these pieces, and then the end of its stdin."""
    with child(argv, **env) as process:
        assert process.stdin
        assert process.stdout
        first = line(process)
        for piece in sent:
            process.stdin.write(piece)
            process.stdin.flush()
            time.sleep(0.02)
        rest, errors = process.communicate(timeout=LIMIT)
        return [first, *rest.splitlines(keepends=True)], errors.decode(), process.returncode


def frame(**values: object) -> bytes:
    return json.dumps(values).encode() + b"\n"


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_credentials_are_taken_whatever_the_pieces(server, cut: int) -> None:
    """A9 A10"""
    values = {"KEY": "grüße 🔑\n\u2028", "OTHER": ""}
    for sent in (frame(**values), json.dumps(values, ensure_ascii=False).encode() + b"\r\n"):
        lines, _, code = told(server({"KEY": "it"}), sent[:cut], sent[cut:-1], sent[-1:])
        assert lines[:2] == [b"+READY\n", b"+OK\n"]
        assert code == 0
        assert eval(lines[2]) == (values, b"")


@pytest.mark.parametrize("size", [10, 100_000])
def test_what_follows_the_line_is_still_there(server, size: int) -> None:
    """A9: binary-safe, also when a parent does not wait for +OK."""
    for raw, following in ((False, b'{"jsonrpc":"2.0"}\n'), (True, b'{"jsonrpc":"2.0"}\n{"more":1}\n')):
        lines, _, _ = told(server(raw=raw), frame(KEY="k" * size) + b'{"jsonrpc":"2.0"}\n{"more":1}\n')
        assert lines[1] == b"+OK\n"
        assert eval(lines[2]) == ({"KEY": "k" * size}, following)


@pytest.mark.parametrize(
    ("sent", "reason", "word"),
    [
        ([], b"+ERR NO_INPUT\n", "stdin ended"),
        ([b'{"KEY": "va'], b"+ERR NO_INPUT\n", "stdin ended"),
        ([b"KEY=sekret\n"], b"+ERR INVALID_JSON\n", "not JSON"),
        ([b'{"KEY": "\xff"}\n'], b"+ERR INVALID_JSON\n", "not JSON"),
        ([b"[" * 100_000 + b"\n"], b"+ERR INVALID_JSON\n", "not JSON"),
        ([b'["sekret"]\n'], b"+ERR INVALID_FORMAT\n", "not a JSON object"),
        ([frame(KEY="sekret", OTHER=7)], b"+ERR INVALID_FORMAT not a string: 'OTHER'\n", "not a string"),
        ([frame(**{"A\nB": None})], b"+ERR INVALID_FORMAT not a string: 'A\\nB'\n", "not a string"),
        ([frame(OTHER="sekret")], b"+ERR MISSING KEY, KEY_2\n", "missing: KEY, KEY_2"),
        (
            [b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}\n'],
            b"+ERR NOT_CREDENTIALS an MCP message came instead of credentials; this server needs a parent that speaks "
            b"SMCP\n",
            "an MCP message came",
        ),
    ],
)
def test_anything_else_is_refused_before_ok_with_the_reason(
    server, sent: list[bytes], reason: bytes, word: str
) -> None:
    """A9"""
    lines, errors, code = told(server({"KEY": "it", "KEY_2": "too"}), *sent)
    assert (lines, code) == ([b"+READY\n", reason], 1)
    assert word in errors
    assert "Traceback" not in errors
    assert "sekret" not in errors


def test_a_parent_that_is_late_is_told_so(server) -> None:
    """A9: 5 s, here less."""
    assert smcp.PATIENCE == 5.0
    with child(server(more="patience=0.3")) as process:
        assert line(process) == b"+READY\n"
        began = time.monotonic()
        assert line(process) == b"+ERR TIMEOUT\n"
        assert 0.2 < time.monotonic() - began < LIMIT
        assert process.wait(LIMIT) == 1
    with child(server(more="patience=0.5")) as process:  # a beginning does not buy time
        assert process.stdin
        assert line(process) == b"+READY\n"
        process.stdin.write(b'{"KEY": "')
        process.stdin.flush()
        assert line(process) == b"+ERR TIMEOUT\n"


def test_the_schema_is_printed_before_any_handshake(server) -> None:
    """A9"""
    argv = [*server({"KEY": "it"}, {"LEVEL": "how much"}), "--credentials-schema"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, check=True)
    assert json.loads(done.stdout) == {"required": {"KEY": "it"}, "optional": {"LEVEL": "how much"}}


def test_the_environment_is_used_only_when_both_sides_say_so_and_only_for_known_keys(server) -> None:
    """A9"""
    env = {"KEY": "from-env", "LEVEL": "1", "UNRELATED": "x"}
    open_ = server({"KEY": "it"}, {"LEVEL": "how much", "MORE": ""}, "environment=True")
    with child([*open_, "--insecure"], **env) as process:
        out, _ = process.communicate(b"first\n", timeout=LIMIT)
        assert eval(out) == ({"KEY": "from-env", "LEVEL": "1"}, b"first\n")
    assert told(open_, frame(KEY="given"), **env)[0][:2] == [b"+READY\n", b"+OK\n"]
    with child([*open_, "--insecure"]) as process:
        out, errors = process.communicate(timeout=LIMIT)
        assert (out, process.returncode) == (b"", 1)
        assert b"not in the environment: KEY" in errors
    closed = server({"KEY": "it"})
    assert told([*closed, "--insecure"], frame(KEY="given"), **env)[0][:2] == [b"+READY\n", b"+OK\n"]


def test_importing_it_costs_next_to_nothing() -> None:
    """A9: nothing but itself is loaded until it is called."""
    code = "import sys; before = set(sys.modules); import mooring.smcp; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert eval(done.stdout) in (["mooring", "mooring.smcp"], ["__future__", "mooring", "mooring.smcp"])


def test_the_server_of_the_guide_works() -> None:
    """A9 A10: with the official SDK behind it."""
    guide = (Path(__file__).parents[1] / "docs" / "servers-with-credentials.md").read_text()
    code = guide.partition("```python\n")[2].partition("```")[0]
    argv = [sys.executable, "-c", code]
    done = subprocess.run([*argv, smcp.SCHEMA_FLAG], capture_output=True, timeout=LIMIT, check=True)
    assert json.loads(done.stdout)["required"] == {"DB_PASS": "password of the database"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    with child(argv) as process:  # a parent that does not even wait for +OK
        assert process.stdin
        process.stdin.write(frame(DB_PASS="x") + frame(jsonrpc="2.0", id=1, method="initialize", params=hello))
        process.stdin.flush()
        assert [line(process), line(process)] == [b"+READY\n", b"+OK\n"]
        assert json.loads(line(process))["result"]["serverInfo"]["name"] == "ledger"


async def test_both_halves_understand_each_other(server) -> None:
    """A10: Mooring as the parent, its helper as the child."""
    limits = Timeouts(close=4.0)
    what = Variant("it", "it", "{}", "d", Process(tuple(server({"KEY": "it"}))), timeouts=limits)
    values = {"KEY": "k" * 200_000, "ODD": "\ud800 \x00 \u2028"}
    async with Keeper() as keeper, ProcessLauncher(keeper).launch(what, what.key(), {}) as launched:
        pipes = await handshake(
            launched, values, server="it", timeouts=limits, redact=lambda text: text, sent=lambda: None
        )
        os.write(pipes.writer, b"ping\n")
        os.close(pipes.writer)
        os.set_blocking(pipes.reader, True)
        with os.fdopen(pipes.reader, "rb") as output:
            assert eval(pipes.leftover + output.read()) == (values, b"ping\n")
