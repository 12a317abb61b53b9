"""Conversations over TLS: certificates are checked, the context is made once, pinned addresses keep their name."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from mooring.errors import StartFailed
from mooring.launch.base import Url
from mooring.wire import egress_transport, http_client
from mooring.wire.connection import Connection
from mooring.wire.jsonrpc import Answer
from mooring.wire.remote_upstream import Terms, connect
from raw_http_server import RawServer

LIMIT = 20.0


class Deaf:
    def announced(self, method: str, params: bytes) -> None:
        pass

    async def asked(self, method: str, params: bytes) -> Answer:
        raise AssertionError(method)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for localhost and pinned.example that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.DNSName("pinned.example")])
    built = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    built = built.add_extension(names, critical=False)
    built = built.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    signed = built.sign(key, hashes.SHA256())
    file = tmp_path_factory.mktemp("tls") / "it.pem"
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + signed.public_bytes(serialization.Encoding.PEM))
    return file


@pytest.fixture
async def server(certificate: Path) -> AsyncIterator[RawServer]:
    it = RawServer("modern")
    it.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    it.tls.load_cert_chain(certificate)
    async with asyncio.timeout(LIMIT), it:
        yield it


@pytest.fixture
def trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    for module in (http_client, egress_transport):
        monkeypatch.setattr(module, "tls_context", lambda: context)


async def opened(server: RawServer) -> Connection:
    exited: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
    terms = Terms("far", exited, Deaf(), b"{}", LIMIT, lambda step: None)
    async with connect(Url(server.url), terms) as connection:
        return connection


def test_the_context_is_made_once() -> None:
    assert http_client.tls_context() is http_client.tls_context()


@pytest.mark.usefixtures("trusted")
async def test_a_known_certificate_is_accepted(server: RawServer) -> None:
    assert (await opened(server)).facts.era == "modern"


async def test_an_unknown_certificate_is_not(server: RawServer) -> None:
    with pytest.raises(StartFailed, match=r"cannot be reached at https://localhost.*certificate"):
        await opened(server)
    assert server.seen == []


@pytest.mark.usefixtures("trusted")
async def test_a_pinned_address_is_asked_for_the_name_of_the_url(server: RawServer) -> None:
    """The certificate is checked against the name, whichever address was looked up."""

    async def find(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    transport = egress_transport.GuardedTransport("loopback", find)
    async with httpx2.AsyncClient(transport=transport) as client:
        reply = await client.delete(f"https://pinned.example:{server.port}/x")
        assert reply.status_code == 200
        assert server.seen[0].headers["host"] == f"pinned.example:{server.port}"
        with pytest.raises(httpx2.ConnectError):
            await client.delete(f"https://other.example:{server.port}/x")
