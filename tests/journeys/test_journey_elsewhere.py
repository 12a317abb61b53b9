"""A client beyond loopback: in a network namespace, as in a container, with a cable to the host."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from mooring.testing.daemon import Daemon, server

Start = Callable[..., Awaitable[Daemon]]
LIMIT = 30.0
NAME = "host.containers.internal"
"""What container engines call the host inside a container."""

CLIENT = """
import asyncio, json, sys
from mooring.testing import HttpClient

async def status(url, token, host):
    async with HttpClient(url, token=token, era="modern", headers={"Host": host} if host else {}) as client:
        async with client.post(b"{}") as reply:
            await reply.body()
            return reply.status

async def main(url, key, name):
    port = url.split(":")[2].split("/")[0]
    async with HttpClient(url, token=key, headers={"Host": f"{name}:{port}"}) as client:
        await client.open()
        named = await client.call("box_echo", {"text": "by name"})
    async with HttpClient(url, token=key, era="modern") as client:
        plain = await client.call("box_echo", {"text": "by address"})
    print(json.dumps({
        "named": named["structuredContent"],
        "plain": plain["structuredContent"],
        "without a key": await status(url, None, None),
        "with a wrong key": await status(url, "mrg_wrong", None),
        "for another host": await status(url, key, "tools.example"),
    }))

asyncio.run(main(*sys.argv[1:]))
"""


class Cable(msgspec.Struct):
    """A namespace that reaches nothing but the host, and where the host is for it."""

    namespace: str
    host: str

    async def run(self, *argv: str) -> dict[str, Any]:
        """What a Python program in the namespace prints, as JSON."""
        process = await asyncio.create_subprocess_exec(
            *("ip", "netns", "exec", self.namespace, sys.executable, *argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(LIMIT):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return json.loads(out)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Made by the test, gone with it."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a network namespace")
    if shutil.which("ip") is None:
        pytest.skip("ip is not installed (Debian: apt-get install iproute2)")
    token = secrets.token_hex(3)
    namespace, outside, inside = f"mooring-{token}", f"mo{token}", f"mi{token}"
    subnet = f"198.18.{secrets.randbelow(256)}"  # set aside for tests of networks

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=LIMIT)

    try:
        ip("netns", "add", namespace)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        ip("link", "add", outside, "type", "veth", "peer", "name", inside, "netns", namespace)
        ip("address", "add", f"{subnet}.1/24", "dev", outside)
        ip("link", "set", outside, "up")
        ip("-n", namespace, "address", "add", f"{subnet}.2/24", "dev", inside)
        ip("-n", namespace, "link", "set", inside, "up")
        yield Cable(namespace, f"{subnet}.1")
    finally:
        ip("netns", "delete", namespace)


async def test_a_client_in_a_container_is_served_with_a_key_under_a_known_name(cable: Cable, start: Start) -> None:
    """R26: by the address, and by the names in ``allowed_hosts``; nobody else is."""
    gateway = {"listen": [f"{cable.host}:0"], "allowed_hosts": [NAME], "public_url": f"http://{NAME}:7420"}
    daemon = await start({"box": server()}, None, gateway)
    assert daemon.endpoint.startswith(f"http://{cable.host}:")
    said = await cable.run("-c", CLIENT, daemon.endpoint, await daemon.key("w"), NAME)
    assert said == {
        "named": {"text": "by name"},
        "plain": {"text": "by address"},
        "without a key": 401,
        "with a wrong key": 401,
        "for another host": 421,
    }
    code, out, err = await daemon.command("env", "-w", "w")
    assert code == 0, err
    assert f"MOORING_URL=http://{NAME}:7420/mcp" in out


async def test_what_listens_on_loopback_is_not_reached_from_a_container(cable: Cable, start: Start) -> None:
    daemon = await start({"box": server()})
    port = daemon.endpoint.rpartition(":")[2].partition("/")[0]
    knock = f"import socket; print(socket.socket().connect_ex(('{cable.host}', {port})))"
    assert await cable.run("-c", knock) != 0
