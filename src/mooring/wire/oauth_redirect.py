"""The end of a login in the browser: a listener on this machine that the authorization server sends the user back to.

Used by ``mooring auth login``. It takes the answer to one question, known by its ``state``, and lives only as long.

Source: RFC 8252 "Loopback Interface Redirection"; MCP 2026-07-28 "Communication Security".
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl, urlsplit

from mooring.wire.http import HttpServer, Reply, Request

PATH = "/callback"
_PAGE = """<!doctype html><meta charset="utf-8"><title>Mooring</title>
<body style="font: 1.2em sans-serif; margin: 4em auto; max-width: 30em"><p>{}</p>"""
_HEADERS = b"Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"


class Redirects:
    """Made by ``listening``. ``uri`` is what the authorization server is told."""

    def __init__(self) -> None:
        self.uri = ""
        self._state = ""
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    def expect(self, authorization_url: str) -> None:
        """Take the answer to this question and to no other."""
        self._state = dict(parse_qsl(urlsplit(authorization_url).query)).get("state", "")

    async def answer(self) -> dict[str, str]:
        """The members of the answer, such as ``code``, once it is there."""
        return await asyncio.shield(self._answer)

    def take(self, url: str) -> bool:
        """A URL that the browser was sent to: whether it is the answer. People may hand it in as well."""
        members = dict(parse_qsl(urlsplit(url.strip()).query))
        if not self._state or not hmac.compare_digest(members.get("state", "").encode(), self._state.encode()):
            return False
        if not self._answer.done():
            self._answer.set_result(members)
        return True

    async def handle(self, request: Request) -> Reply:
        """The handler of the listener."""
        if request.path != PATH or request.method != b"GET":
            return _page(404, "There is nothing here.")
        if not self.take("?" + request.query.decode("latin-1")):
            return _page(400, "This is not the login that Mooring waits for.")
        return _page(200, "Mooring has its answer. You may close this page and go back to the terminal.")


@asynccontextmanager
async def listening(port: int) -> AsyncGenerator[Redirects]:
    """Listen on ``port`` of this machine (0: any free one). Raises OSError when it is taken."""
    redirects = Redirects()
    async with HttpServer(redirects.handle, grace=0.2) as server:
        _, port = await server.listen("127.0.0.1", port)
        with suppress(OSError):  # browsers take the other family for "localhost" as well, where there is one
            await server.listen("::1", port)
        redirects.uri = f"http://localhost:{port}{PATH}"
        yield redirects


def _page(status: int, text: str) -> Reply:
    return Reply(status, _PAGE.format(text).encode(), _HEADERS)
