"""Which era a server on stdio speaks, and what it says about itself.

Used by ``wire.stdio_upstream`` before it hands out a connection. It sends requests and reads answers; it knows no pipe
and sets no limit on the whole, which its caller does.

The probe is ``server/discover``. A modern server answers it; a legacy one answers with an error, stays silent, or
exits. Silence is the hard case, because a server that still imports its libraries is silent too. So after a while
``initialize`` follows *while the probe stays open*, and both answers count:

- ``initialize`` is accepted: legacy, whatever becomes of the probe, for now this process is in its legacy mode;
- the probe is answered after all, and ``initialize`` is refused or ignored: modern, and slow to start;
- ``initialize`` is refused with "unsupported protocol version": modern, asked again unless the probe has its answer.

Source: MCP 2026-07-28 "Versioning and Compatibility" and "stdio"; MCP 2025-11-25 "Lifecycle".
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mooring import __version__
from mooring.errors import UpstreamProtocol
from mooring.nouns import Era, Facts
from mooring.wire.eras import LEGACY_VERSIONS, MODERN_VERSIONS, SERVER_INFO_KEY, supported_versions, to_modern_params
from mooring.wire.jsonrpc import EMPTY, Answer, Raw, build, fields, string, text

CLIENT_INFO = text({"name": "mooring", "version": __version__})
"""How Mooring introduces itself to servers."""


class NeedsRespawn(Exception):
    """The probe ended the server. Start a fresh process and connect to it with ``era`` as the remembered one."""

    def __init__(self, era: Era) -> None:
        super().__init__(f"the server ended at the probe; start it again as {era}")
        self.era: Era = era


class Handshake:
    """One negotiation with one process.

    ``begin(method, params)`` sends a request; its future fails with Crashed when the server goes away.
    ``capabilities``: what to declare, raw JSON. ``patience``: seconds that a silent probe is waited for alone.
    ``phase`` is told each step as it begins.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[str, bytes], asyncio.Future[Answer]],
        *,
        capabilities: bytes,
        patience: float,
        phase: Callable[[str], None],
    ) -> None:
        self.step = ""
        """The last phase that began."""
        self.blame_probe = False
        """Whether the probe may be what ended the server, if it ends now."""
        self._name = name
        self._begin = begin
        self._capabilities = capabilities
        self._patience = patience
        self._phase = phase

    async def run(self, era: Era | None) -> Facts:
        """What the server is. ``era``: what it was last time.

        Raises UpstreamProtocol when there is no version in common, Crashed when the server goes away.
        """
        if era == "legacy":
            answer = await self._initialize()
            if answer.error is None:
                return self._legacy(answer)
        self.blame_probe = era != "legacy"
        return await self._probe()

    async def run_legacy(self) -> Facts:
        """Like ``run`` where only the legacy era makes sense: on a transport or in a session that belongs to it."""
        return self._legacy(await self._initialize())

    async def _probe(self) -> Facts:
        discover = self._discover(MODERN_VERSIONS[0])
        if not await _settled(discover, self._patience):
            return await self._both(discover)
        return await self._modern(await discover) or await self._insist(await self._initialize())

    async def _both(self, discover: asyncio.Future[Answer]) -> Facts:
        """The probe met silence: see the head of this module."""
        initialize = self._initialize()
        await asyncio.wait((discover, initialize), return_when=asyncio.FIRST_COMPLETED)
        facts = await self._modern(discover.result()) if discover.done() else None
        if facts is not None and not await _settled(initialize, self._patience):
            return facts
        answer = await initialize
        if answer.error is None:
            return self._legacy(answer)
        if facts is None and await _settled(discover, self._patience):
            facts = await self._modern(discover.result())
        return facts or await self._insist(answer)

    async def _insist(self, answer: Answer) -> Facts:
        """The facts in the answer to ``initialize``; where it says that the server is modern, the probe again."""
        offered = None if answer.error is None else supported_versions(answer.error)
        version = _common(offered or (), MODERN_VERSIONS)
        facts = await self._modern(await self._discover(version)) if version else None
        return facts or self._legacy(answer)

    async def _modern(self, answer: Answer) -> Facts | None:
        """The facts in the answer to ``server/discover``; None when it is no sign of a modern server. A version that
        the server asks for instead is tried once."""
        if answer.error is not None:
            offered = supported_versions(answer.error)
            version = None if offered is None else self._choose(offered)
            if version is None:
                return None
            answer = await self._discover(version)
        parts = fields(answer.result)
        try:
            offered = msgspec.json.decode(parts.get("supportedVersions", b"null"), type=tuple[str, ...])
        except msgspec.DecodeError:
            return None
        version = self._choose(offered)
        if version is None:
            return None
        self.blame_probe = False
        return _facts("modern", version, parts, fields(parts.get("_meta")).get(SERVER_INFO_KEY))

    def _legacy(self, answer: Answer) -> Facts:
        if answer.error is not None:
            reason = string(fields(answer.error).get("message")) or answer.error.decode(errors="replace")
            raise self._broken(f"refused initialize: {reason[:500]}")
        parts = fields(answer.result)
        version = string(parts.get("protocolVersion"))
        if version not in LEGACY_VERSIONS:
            raise self._broken(f"answered initialize with protocol version {version!r}, which is not spoken here")
        return _facts("legacy", version, parts, parts.get("serverInfo"))

    def _choose(self, offered: tuple[str, ...]) -> str | None:
        """The modern version to speak with a server that offers these; None when it only has legacy ones."""
        version = _common(offered, MODERN_VERSIONS)
        if version is None and _common(offered, LEGACY_VERSIONS) is None:
            raise self._broken(f"only speaks protocol versions unknown here: {', '.join(offered)[:200] or 'none'}")
        return version

    def _discover(self, version: str) -> asyncio.Future[Answer]:
        return self._send(
            "server/discover",
            to_modern_params(EMPTY, version=version, capabilities=self._capabilities, client_info=CLIENT_INFO),
        )

    def _initialize(self) -> asyncio.Future[Answer]:
        version = text(LEGACY_VERSIONS[0])
        hello = {"protocolVersion": version, "capabilities": self._capabilities, "clientInfo": CLIENT_INFO}
        return self._send("initialize", build(hello))

    def _send(self, method: str, params: bytes) -> asyncio.Future[Answer]:
        self.step = method.removeprefix("server/")
        self._phase(self.step)
        return self._begin(method, params)

    def _broken(self, what: str) -> UpstreamProtocol:
        return UpstreamProtocol(f"{self._name} {what}", server=self._name, phase=self.step)


async def _settled(answer: asyncio.Future[Answer], limit: float) -> bool:
    await asyncio.wait((answer,), timeout=limit)
    return answer.done()


def _common(offered: tuple[str, ...], ours: tuple[str, ...]) -> str | None:
    return next((version for version in ours if version in offered), None)


def _facts(era: Era, version: str, parts: dict[str, Raw], server_info: Raw | None) -> Facts:
    return Facts(
        era=era,
        version=version,
        capabilities=bytes(parts.get("capabilities", EMPTY)),
        server_info=bytes(server_info or EMPTY),
        instructions=string(parts.get("instructions")) or "",
    )
