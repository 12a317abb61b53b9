"""The flags of the echo server, one table; ``docs/testing.md`` is checked against it."""

from __future__ import annotations

import argparse

CAPABILITIES = ("tools", "prompts", "resources", "completions", "logging")


def parser() -> argparse.ArgumentParser:
    """The command line of ``python -m mooring.testing.echo``."""
    flags = argparse.ArgumentParser(
        prog="python -m mooring.testing.echo",
        description="An MCP server on stdio that behaves, or misbehaves, as its flags say.",
        allow_abbrev=False,
    )
    add = flags.add_argument
    add("--era", choices=("legacy", "modern", "dual"), default="dual", help="which protocol eras it speaks")
    add(
        "--lock-era",
        action="store_true",
        help="dual: the first request decides; the other era gets -32022 from then on",
    )
    add("--http", type=int, metavar="PORT", help="streamable HTTP at /mcp of 127.0.0.1; 0 is any free port")
    add("--sse", type=int, metavar="PORT", help="the old HTTP+SSE transport at /sse; legacy only")
    add("--name", default="echo", help="the name it reports as serverInfo")
    add("--instructions", default="", help="the instructions it reports")
    add("--without", action="append", default=[], choices=CAPABILITIES, help="a capability it does not have; repeats")
    add("--tools", type=int, default=0, metavar="N", help="N more tools, tool_0 and so on, which answer like echo")
    add("--tool", action="append", default=[], metavar="NAME", help="a tool of this name, which answers it; repeats")
    add("--page-size", type=int, default=0, metavar="N", help="lists come in pages of N items; 0 is one page")
    add("--repeat-cursor", action="store_true", help="every list page names the same next cursor, for ever")
    add("--huge", type=int, default=10_000_000, metavar="BYTES", help="size of what the tool huge answers")
    add("--changing", action="store_true", help="adds the tool change, which alters a list and announces it")
    add("--start-delay", type=float, default=0.0, metavar="SECONDS", help="sleep before the first byte is read")
    add("--crash-at-start", action="store_true", help="write two lines to stderr and exit with code 1 at once")
    add("--crash-in-call", action="store_true", help="every tools/call ends the process with code 1, unanswered")
    add(
        "--crash-on",
        action="append",
        default=[],
        metavar="METHOD",
        help="a request for METHOD ends it with code 1; repeats",
    )
    add("--hang", action="append", default=[], metavar="METHOD", help="requests for METHOD are never answered; repeats")
    add("--fail", action="append", default=[], metavar="METHOD", help="requests for METHOD get error -32603; repeats")
    add("--never-answer", action="store_true", help="read everything, answer nothing")
    add("--stderr-noise", type=int, default=0, metavar="BYTES", help="write so much to stderr before reading")
    add("--garbage", action="store_true", help="text and broken JSON on stdout, at the start and before every answer")
    add(
        "--non-utf8",
        action="store_true",
        help="a line that is not UTF-8 on stdout, at the start and before every answer",
    )
    add("--ignore-term", action="store_true", help="ignore SIGTERM (its grandchildren too)")
    add("--ignore-eof", action="store_true", help="stay alive for ten minutes after stdin has ended")
    add("--spawn-grandchild", action="store_true", help="start two sleeping processes, one of them in its own session")
    return flags
