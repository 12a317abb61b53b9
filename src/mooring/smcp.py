"""For servers: take credentials over stdin before MCP begins (SMCP credential handshake v0.2). Standard library only.

    from mooring.smcp import credentials      # or copy this file beside your server: it imports nothing else

    values = credentials(required={"DB_PASS": "password of the database"}, optional={"DB_USER": "default: app"})
    run_mcp_server(values["DB_PASS"])

The conversation on stdin and stdout, one line each:

    this program    +READY
    its parent      {"DB_PASS": "...", ...}
    this program    +OK                       from here on MCP; or +ERR and a reason, and exit code 1

Call it first, before anything is written to stdout or read from stdin. Only the one line is taken from descriptor 0;
what follows it is there for whoever reads next, through ``sys.stdin`` or beside it. Source: SMCP 0.2.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from typing: importing that costs more than the rest
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

PATIENCE = 5.0
"""Seconds that the parent has for the credentials, from +READY on."""
SCHEMA_FLAG = "--credentials-schema"
INSECURE_FLAG = "--insecure"


def credentials(
    required: Mapping[str, str] | None = None,
    optional: Mapping[str, str] | None = None,
    *,
    environment: bool = False,
    patience: float = PATIENCE,
) -> dict[str, str]:
    """The credentials of this server, all that the parent gave.

    ``required`` and ``optional``: key to a description for people. With ``--credentials-schema`` on the command line
    they are printed as JSON, and the program ends. ``environment``: allow ``--insecure`` on the command line, for
    parents that know no SMCP: no handshake, and the keys named here are taken from the environment.

    Ends the program (SystemExit, code 1) when the parent is late, sends something else, or leaves a required key out;
    the parent is told why, and stderr says it in full.
    """
    required, optional = dict(required or {}), dict(optional or {})
    if SCHEMA_FLAG in sys.argv[1:]:
        _print_schema(required, optional)
    if environment and INSECURE_FLAG in sys.argv[1:]:
        given = {key: os.environ[key] for key in (*required, *optional) if key in os.environ}
        if missing := _missing(given, required):
            sys.exit(f"{sys.argv[0]}: not in the environment: {missing}")
        return given
    _say("+READY")
    given = _parsed(_line(patience))
    if missing := _missing(given, required):
        _refuse(f"MISSING {missing}", f"missing: {missing}")
    _say("+OK")
    return given


def _missing(given: dict[str, str], required: dict[str, str]) -> str:
    return ", ".join(key for key in required if key not in given)


def _print_schema(required: dict[str, str], optional: dict[str, str]) -> NoReturn:
    import json

    _say(json.dumps({"required": required, "optional": optional}))
    sys.exit(0)


def _line(patience: float) -> bytes:
    """The next line of stdin, and not a byte more of it."""
    import select
    import time

    until = time.monotonic() + patience
    line = bytearray()
    while not line.endswith(b"\n"):
        if not select.select([0], [], [], max(0.0, until - time.monotonic()))[0]:
            _refuse("TIMEOUT", f"no credentials came within {patience:g} s; does the parent speak SMCP?")
        byte = os.read(0, 1)  # a larger read may take what belongs to MCP; 100 KB take a tenth of a second this way
        if not byte:
            _refuse("NO_INPUT", "stdin ended before the credentials came")
        line += byte
    return bytes(line)


def _parsed(line: bytes) -> dict[str, str]:
    import json

    try:
        given: Any = json.loads(line)
    except (ValueError, RecursionError):  # its message would quote the line
        _refuse("INVALID_JSON", "the credentials are not JSON")
    if not isinstance(given, dict):
        _refuse("INVALID_FORMAT", "the credentials are not a JSON object")
    values: dict[str, Any] = given  # pyright: ignore[reportUnknownVariableType] -- JSON
    if "jsonrpc" in values:
        text = "an MCP message came instead of credentials; this server needs a parent that speaks SMCP"
        _refuse(f"NOT_CREDENTIALS {text}", text)
    if wrong := ", ".join(ascii(key) for key, value in values.items() if not isinstance(value, str)):
        _refuse(f"INVALID_FORMAT not a string: {wrong}", f"not a string: {wrong}")
    return values


def _refuse(reason: str, text: str) -> NoReturn:
    """Tell the parent the reason, and whoever reads stderr more of it, and end."""
    _say(f"+ERR {reason}")
    sys.stderr.write(f"{os.path.basename(sys.argv[0])}: no start without credentials: {text}\n")
    sys.exit(1)


def _say(line: str) -> None:
    """A line of the protocol; what was printed before, by mistake, comes out first and is seen."""
    sys.stdout.flush()
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]
