"""``python -m mooring.testing.smcp``: an echo server that takes SMCP credentials v0.2, or gets it wrong.

Written against the text of SMCP 0.2 alone, in two ways: as its examples do it (``--mode text``) and on the bare
descriptors. What it does not know itself is for the echo server (``docs/testing.md``). Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from string import Template

from mooring.testing import tools
from mooring.testing.call import Call
from mooring.testing.echo import Output
from mooring.testing.flags import parser
from mooring.testing.peer import JSON
from mooring.testing.server import Server

BANNER = "Welcome to the ledger 2.0!"
PREMATURE = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"early"}}'


class Text:
    """Lines by ``print`` and ``readline``."""

    def __init__(self, pause: float) -> None:
        self._pause = pause

    def say(self, text: str) -> None:
        for character in text if self._pause else [text]:
            print(character, end="", flush=True)
            time.sleep(self._pause)

    def line(self) -> str:
        return sys.stdin.readline()

    def serve(self, receive: Callable[[bytes], None]) -> None:
        for line in sys.stdin:
            receive(line.rstrip("\n").encode())


class Binary:
    """Bytes by ``read`` and ``write``; what comes behind the credentials is kept."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._rest = b""

    def say(self, text: str) -> None:
        for piece in text if self._pause else [text]:
            os.write(1, piece.encode())
            time.sleep(self._pause)

    def line(self) -> str:
        data = b""
        while b"\n" not in data and (piece := os.read(0, 4096)):
            data += piece
            time.sleep(self._pause)
        line, _, self._rest = data.partition(b"\n")
        return line.decode()

    def serve(self, receive: Callable[[bytes], None]) -> None:
        data = self._rest
        while True:
            *lines, data = data.split(b"\n")
            for line in lines:
                receive(line)
            piece = os.read(0, 65536)
            if not piece:
                return
            data += piece


Wire = Text | Binary
TROUBLES_BEFORE = ("banner", "silent", "mcp-first", "exit-first", "half-line", "grandchild")
TROUBLES_AFTER = ("mute", "echo", "exit-after", "close", "gossip")


def _flags() -> tuple[argparse.Namespace, list[str]]:
    flags = argparse.ArgumentParser(prog="python -m mooring.testing.smcp", allow_abbrev=False, add_help=False)
    add = flags.add_argument
    add("--mode", choices=("text", "binary"), default="binary")
    add("--require", action="append", default=[], metavar="KEY")
    add("--accept", action="append", default=[], metavar="KEY")
    add("--credentials-schema", action="store_true")
    add("--refuse", metavar="REASON")
    add("--crlf", action="store_true")
    add("--early", action="store_true")
    add("--pause", type=float, default=0.0, metavar="SECONDS")
    add("--trouble", choices=(*TROUBLES_BEFORE, *TROUBLES_AFTER))
    return flags.parse_known_args()


def _before(trouble: str | None, wire: Wire) -> None:
    """What goes wrong before +READY."""
    match trouble:
        case "banner":
            wire.say(BANNER + "\n")
        case "silent":
            time.sleep(600)
        case "mcp-first":
            wire.say(PREMATURE + "\n")
        case "exit-first":
            tools.die("no ledger here", 7)
        case "half-line":
            wire.say("+REA")
            time.sleep(600)
        case "grandchild":  # holds the pipes open when this process is gone
            os.posix_spawnp("sleep", ["sleep", "600"], os.environ)
            tools.die("only a child is left", 7)
        case _:
            pass


def _after(trouble: str | None, wire: Wire, line: str) -> None:
    """What goes wrong with the credentials."""
    match trouble:
        case "mute":
            time.sleep(600)
        case "echo":
            print(f"got {line}", file=sys.stderr, flush=True)
            wire.say(f"got {line}\n")
        case "exit-after":
            print(f"cannot use {line}", file=sys.stderr, flush=True)
            sys.exit(7)
        case "close":
            os.close(1)
            time.sleep(600)
        case _:
            pass


def main() -> None:
    """Run the server."""
    flags, rest = _flags()
    if flags.credentials_schema:
        known = {"required": dict.fromkeys(flags.require, "needed"), "optional": dict.fromkeys(flags.accept, "useful")}
        print(json.dumps(known))
        return
    wire: Wire = Text(flags.pause) if flags.mode == "text" else Binary(flags.pause)
    end = "\r\n" if flags.crlf else "\n"
    _before(flags.trouble, wire)
    wire.say("+READY" + end)
    line = wire.line()
    _after(flags.trouble, wire, line)
    try:
        given: JSON = json.loads(line)
    except ValueError:
        wire.say("+ERR INVALID_JSON" + end)
        sys.exit(1)
    if flags.refuse is not None:
        wire.say(f"+ERR {Template(flags.refuse).safe_substitute(given)}{end}")
        sys.exit(1)
    if "jsonrpc" in given:
        wire.say("+ERR that is no credential" + end)
        sys.exit(1)
    wire.say("+OK" + end + (PREMATURE + "\n" if flags.early else ""))
    if flags.trouble == "gossip":
        print(f"I was told {line}", file=sys.stderr, flush=True)
        wire.say(f"I was told {line}\n")
    _serve(wire, given, rest)


def _serve(wire: Wire, given: JSON, rest: list[str]) -> None:
    def credentials(call: Call) -> JSON:
        """Answers the credentials it was given"""
        return {"content": [], "structuredContent": given}

    tools.more["credentials"] = credentials
    with suppress(BrokenPipeError, KeyboardInterrupt):
        wire.serve(Server(parser().parse_args(rest), Output(b"").write).receive)
    os._exit(0)


if __name__ == "__main__":
    main()
