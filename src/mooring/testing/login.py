"""A login as a person does it, without the person: ``mooring auth login`` and a browser that says yes to everything."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping

import httpx2

LIMIT = 120.0
"""Seconds for one login."""
HOPS = 5


async def visit(url: str) -> str:
    """Go where a browser would go, as far as this machine; the last address."""
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT) as browser:
        for _ in range(HOPS):
            response = await browser.get(url)
            if response.next_request is None:
                break
            url = str(response.next_request.url)
    return url


async def log_in(environ: Mapping[str, str], server: str, *, paste: bool = False) -> tuple[int, str, str]:
    """Run ``mooring auth login SERVER --json``; exit code, stdout, stderr. ``paste``: the browser is somewhere else, so
    the address it ends at is typed in."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mooring", "auth", "login", server, "--json"),
        env=dict(environ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    said = b""
    try:
        async with asyncio.timeout(LIMIT):
            while line := await process.stderr.readline():
                said += line
                if line.startswith(b"http"):
                    url = line.decode().strip()
                    if paste:
                        process.stdin.write((await _elsewhere(url)).encode() + b"\n")
                    else:
                        await visit(url)
            out, rest = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), (said + rest).decode()


async def _elsewhere(url: str) -> str:
    """Where the authorization server sends a browser that cannot reach our listener."""
    async with httpx2.AsyncClient(trust_env=False, timeout=LIMIT) as browser:
        return (await browser.get(url)).headers["location"]
