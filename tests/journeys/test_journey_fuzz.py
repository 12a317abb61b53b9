"""Hostile input for a real daemon, on both its doors: well-formed answers or a clean close, and it serves on.

``tests/wire/test_wire_http_fuzz.py`` does the same to the bytes of the HTTP front alone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mooring.config.home import Home
from mooring.serve.verbs import Verbs
from mooring.testing.daemon import Daemon, daemon, server
from mooring.wire.http_front import endpoint

BOUND = 15.0
"""Seconds for one answer."""
OFFLINE = {"sources": {name: {"kind": "starter", "enabled": False} for name in ("official", "docker")}}
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Place:
    """A daemon, and raw connections to its doors."""

    def __init__(self, running: Daemon, key: str) -> None:
        self.running = running
        self.key = key
        self.control = Home.locate({"MOORING_HOME": str(running.home)}).socket
        where = urlsplit(running.endpoint)
        assert where.hostname
        assert where.port
        self.authority = where.netloc
        self.address = (where.hostname, where.port)

    def said(self, *pieces: bytes) -> list[Any]:
        """What the control socket answers to these bytes, sent apart, until our side is closed and it has said all;
        a status that is asked at the end is answered too."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(BOUND)
            sock.connect(self.control)
            with suppress(BrokenPipeError):
                for piece in pieces:
                    sock.sendall(piece)
            return list(answers(sock))

    def serves(self) -> None:
        """It still answers at both doors."""
        (status,) = self.said(b'{"id":"end","method":"status"}\n')
        assert status["result"]["workspaces"] == ["w"]
        assert self.http("GET", "/healthz")[0] == 200

    def http(
        self, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, bytes]:
        given = {"Host": self.authority, "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in given.items())
        with socket.create_connection(self.address, BOUND) as sock:
            sock.sendall(head.encode("utf-8", "surrogateescape") + b"\r\n" + body)
            answer = bytearray()
            while block := sock.recv(1 << 16):
                answer += block
        first, _, rest = bytes(answer).partition(b"\r\n")
        version, status, _ = first.split(b" ", 2)
        assert version == b"HTTP/1.1"
        return int(status), rest.partition(b"\r\n\r\n")[2]


def answers(sock: socket.socket) -> Generator[Any]:
    """Lines until the last one that has to come, or the end."""
    rest = b""
    while True:
        *lines, rest = rest.split(b"\n")
        for line in lines:
            message = json.loads(line)
            yield message
            if last(message):
                return
        block = sock.recv(1 << 16)
        if not block:
            assert rest == b""
            return
        rest += block


def last(message: Any) -> bool:
    """The answer to the status at the end; or a conversation that begins, or is refused, where verbs mean nothing."""
    refused = "id" not in message and "exit_code" in message.get("error", {})
    return message.get("id") == "end" or "attached" in message or refused


@pytest.fixture(scope="module")
def place() -> Generator[Place]:
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        context = daemon(Path(folder), {"echo": server()}, None, {"allowed_hosts": ["gate.example"]}, catalog=OFFLINE)
        running = runner.run(context.__aenter__())
        try:
            found = Place(running, runner.run(running.key("w")))
            yield found
            found.serves()
            assert "Traceback" not in running.output
            assert running.process.returncode is None
        finally:
            runner.run(context.__aexit__(None, None, None))


END = b'\n{"id":"end","method":"status"}\n'


def well_formed(message: Any) -> None:
    assert message["jsonrpc"] == "2.0"
    if message.get("method") == "heard":
        return
    assert ("result" in message) != ("error" in message), message
    if "error" in message:
        assert isinstance(message["error"]["message"], str)


# the control socket


@FUZZ
@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_random_bytes_are_answered_or_hung_up_on(place: Place, pieces: list[bytes], ended: bool) -> None:
    if ended:
        for message in place.said(*pieces, END):
            well_formed(message)
    else:
        with socket.socket(socket.AF_UNIX) as sock:  # half a line, and gone
            sock.connect(place.control)
            sock.sendall(b"".join(pieces).replace(b"\n", b""))
    place.serves()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.integers()
    | st.sampled_from(["", "w", "echo", "k_x", "\ud800", "../.."]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
VERBS = {
    name: [parameter for parameter in inspect.signature(method).parameters if parameter not in ("self", "heard")]
    for name, method in inspect.getmembers(Verbs, inspect.iscoroutinefunction)
    if not name.startswith("_") and name not in ("invoke", "add_functions")
}
ENDLESS = {("logs", "follow")}


@st.composite
def verbs(draw: Any) -> tuple[str, dict[str, Any]]:
    """A verb and parameters that are right in name at most; one stranger keeps ``stop`` and the like from happening."""
    name = draw(st.sampled_from([*VERBS, "", "nothing", "__init__", "_verbs", "invoke"]))
    known = [each for each in VERBS.get(name, []) if (name, each) not in ENDLESS]
    given = draw(st.dictionaries(st.sampled_from(known) if known else st.text(max_size=4), JSON, max_size=4))
    if name in ("stop", "catalog_refresh") or not known:
        given["stranger"] = draw(JSON)
    return name, given


@settings(FUZZ, max_examples=200)
@given(verbs())
def test_every_verb_answers_whatever_it_is_given(place: Place, asked: tuple[str, dict[str, Any]]) -> None:
    name, given = asked
    line = json.dumps({"id": 1, "method": name, "params": given}).encode() + b"\n"
    found = place.said(line + END.strip() + b"\n")
    if len(found) == 1:  # the status was faster
        return
    for message in found:
        well_formed(message)


@pytest.mark.parametrize("name", sorted(VERBS))
@pytest.mark.parametrize("value", [None, True, -1, 1e308, [], [[]], {"a": {}}, "\0", "x" * 100_000])
def test_a_wrong_type_in_each_place_of_each_verb_is_answered(place: Place, name: str, value: Any) -> None:
    for parameter in [each for each in VERBS[name] if (name, each) not in ENDLESS] or ["stranger"]:
        if (name, parameter, value) in (("catalog_refresh", "sources", []), ("catalog_refresh", "force", True)):
            continue
        given = {parameter: value, **({"stranger": 1} if name in ("stop", "catalog_refresh") else {})}
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(BOUND)
            sock.connect(place.control)
            sock.sendall(json.dumps({"id": "end", "method": name, "params": given}).encode() + b"\n")
            (message,) = (each for each in answers(sock) if each.get("method") != "heard")
            well_formed(message)


@FUZZ
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "attach", "workspace"]), JSON))
def test_any_line_of_json_is_answered(place: Place, line: dict[str, Any]) -> None:
    if line.get("method") == "stop":
        return
    for message in place.said(json.dumps(line).encode() + END):
        if "attached" not in message:
            assert "error" in message or "result" in message


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 500_000,
        b'{"a":' * 200_000,
        b'{"id":1,"method":"call","params":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
        b'{"id":1,"method":"' + b"x" * (8 << 20) + b'"}',
        b'{"attach":"' + b"x" * (8 << 20) + b'"}',
        b"9" * (8 << 20),
        b"x" * (65 << 20),
        b"\0" * 1000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["deep list", "deep object", "deep verb", "long verb", "long attach", "digits", "giant", "zeros", "http"],
)
def test_giant_and_deep_lines_are_refused_not_suffered(place: Place, line: bytes) -> None:
    for message in place.said(line, END):
        assert "error" in message or message["id"] == "end"
    place.serves()


STRANGER = """
import json, os, socket, sys
os.setgroups([])
os.setgid(12345)
os.setuid(12345)
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(10)
sock.connect(sys.argv[1])
try:
    sock.sendall(json.dumps({"id": 1, "method": "key_create", "params": {"workspace": "w"}}).encode() + b"\\n")
except BrokenPipeError:
    pass  # it has hung up already
while block := sock.recv(9999):
    print(block.decode())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user: run the tests as root")
@pytest.mark.parametrize("opened", [False, True])
def test_another_user_of_this_machine_is_refused(place: Place, opened: bool) -> None:
    """By the mode of the folder; and where somebody opened that, by who they are."""
    home = place.running.home
    modes = {path: path.stat().st_mode for path in (home, *home.rglob("*"))}
    keys = place.said(b'{"id":"end","method":"key_list"}\n')
    try:
        for path, mode in modes.items() if opened else ():
            path.chmod(mode | 0o777)
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-c", STRANGER, place.control],
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )
    finally:
        for path, mode in modes.items() if opened else ():
            path.chmod(mode & 0o7777)
    if opened:
        assert "belongs to another user" in ran.stdout, ran.stderr
    else:
        assert "PermissionError" in ran.stderr, ran.stderr
    assert "mrg_" not in ran.stdout
    assert place.said(b'{"id":"end","method":"key_list"}\n') == keys


# the HTTP front

WIDE = "\uff0e\uff0e\uff0f"
"""Two dots and a slash, as wide characters."""
PARTS = st.sampled_from(
    ["/", "w", "s", "mcp", "healthz", "metrics", "..", ".", "%2e", "%2E%2e", "%2f", "%00", "//", "\\", ";", "?", "#",
     "@", "é", WIDE, "%c0%ae", "echo", "*", " ", "\t", "%25", "W", "http://x/", "\x7f"]
)  # fmt: skip
PATHS = st.sampled_from(["/mcp", "/w/w/mcp", "/healthz", "/metrics"]) | st.lists(PARTS, max_size=8).map(
    lambda parts: "/" + "".join(parts)
)
OWN = object()
HOSTS = st.sampled_from(
    [OWN, OWN, OWN, "gate.example", "evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "[::1", "\xff"]
)
ORIGINS = st.sampled_from(
    [None, None, OWN, "null", "http://evil.example", "https://gate.example.evil", "", "file://", "x"]
)
KEYS = st.sampled_from(
    [None, OWN, "", "Bearer", "Bearer ", "Bearer mrg_wrong", "Basic dzp3", "bearer  x y", "Bearer " + "x" * 5000]
)
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode()


@settings(FUZZ, max_examples=300)
@given(st.sampled_from(["POST", "GET", "DELETE", "PUT", "OPTIONS", "HEAD"]), PATHS, HOSTS, ORIGINS, KEYS)
def test_only_the_right_path_host_origin_and_key_open_anything(
    place: Place, method: str, path: str, host: Any, origin: Any, key: Any
) -> None:
    headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    headers["Host"] = place.authority if host is OWN else host
    if origin is not None:
        headers["Origin"] = f"http://{place.authority}" if origin is OWN else origin
    if key is not None:
        headers["Authorization"] = f"Bearer {place.key}" if key is OWN else key
    status, body = place.http(method, path, headers, INITIALIZE if method == "POST" else b"")
    assert status < 500, (status, body)
    hosted = host is OWN or host == "gate.example"
    local = origin is None or origin is OWN
    named = path.partition("?")[0]
    page = named in ("/healthz", "/metrics")
    if status < 400:
        assert hosted, headers
        assert local, headers
        assert page or key is OWN, headers
        assert page or endpoint(named) in ((None, None), ("w", None)), path
    elif body and method != "HEAD":
        json.loads(body)
        assert b"Traceback" not in body
    if method == "POST" and path in ("/mcp", "/w/w/mcp") and hosted and local:
        assert status == (200 if key is OWN else 401)
