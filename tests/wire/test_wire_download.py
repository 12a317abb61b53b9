"""Downloads: the configured place as it stands, redirects elsewhere under guard, everything bounded."""

from __future__ import annotations

import socket

import pytest

from mooring.errors import Crashed, UpstreamProtocol
from mooring.wire import download
from mooring.wire.download import Downloads
from mooring.wire.egress import Forbidden
from raw_http_server import Exchange, RawServer

MOST = 1 << 20


def serving(server: RawServer, **answers: tuple[int, bytes, dict[str, str]]) -> None:
    """Answer paths by their last part."""

    async def serve(exchange: Exchange) -> bool:
        status, body, headers = answers[exchange.path.rpartition("/")[2]]
        await exchange.reply(status, body, **headers)
        return True

    server.override = serve


def at(server: RawServer, path: str) -> str:
    return f"{server.url.rpartition('/')[0]}/{path}"


async def test_a_document_comes_with_status_and_headers() -> None:
    async with RawServer() as server:
        serving(server, doc=(200, b"content", {"etag": '"1"'}), gone=(404, b"no", {}))
        async with Downloads(at(server, "doc")) as downloads:
            status, headers, body = await downloads.get(at(server, "doc"), {"x-own": "yes"}, MOST)
            assert (status, headers["etag"], body) == (200, '"1"', b"content")
            assert server.seen[-1].headers["x-own"] == "yes"
            assert (await downloads.get(at(server, "gone"), {}, MOST))[0] == 404


async def test_redirects_are_followed_but_not_in_circles() -> None:
    async with RawServer() as server:
        serving(server, a=(302, b"", {"location": "b"}), b=(307, b"", {"location": "c"}), c=(200, b"there", {}))
        async with Downloads(at(server, "a")) as downloads:
            assert (await downloads.get(at(server, "a"), {}, MOST))[2] == b"there"
            serving(server, a=(302, b"", {"location": "a"}))
            with pytest.raises(UpstreamProtocol, match="circles"):
                await downloads.get(at(server, "a"), {}, MOST)


async def test_a_redirect_leads_into_no_private_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever answers at a public address does not get to reach this machine or its neighbours."""

    async def public(url: str) -> str:
        return "public"

    monkeypatch.setattr(download, "trust", public)
    async with RawServer() as server, Downloads(at(server, "a")) as downloads:
        for target in (
            "http://169.254.169.254/latest",
            "https://127.0.0.1:1/",
            "https://10.0.0.1/",
            "http://[::1]:1/",
        ):
            serving(server, a=(302, b"", {"location": target}))
            with pytest.raises(Forbidden):
                await downloads.get(at(server, "a"), {}, MOST)


async def test_a_redirect_from_a_place_whose_name_only_a_proxy_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What such a place may send Mooring to cannot be said, and that is no traceback."""

    async def unknown(url: str) -> str:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(download, "trust", unknown)
    async with RawServer() as server, Downloads(at(server, "a")) as downloads:
        serving(server, a=(302, b"", {"location": "http://192.0.2.1/"}))
        with pytest.raises(Crashed, match="Name or service not known"):
            await downloads.get(at(server, "a"), {}, MOST)


async def test_what_is_too_large_is_given_up() -> None:
    async with RawServer() as server:
        serving(server, a=(200, b"x" * (MOST + 1), {}))
        async with Downloads(at(server, "a")) as downloads:
            with pytest.raises(UpstreamProtocol, match="larger than 1 MiB"):
                await downloads.get(at(server, "a"), {}, MOST)


async def test_a_place_that_is_not_there_is_named_without_its_secrets() -> None:
    async with Downloads("http://user:hidden@127.0.0.1:1/x?key=hidden") as downloads:
        with pytest.raises(Crashed) as error:
            await downloads.get("http://user:hidden@127.0.0.1:1/x?key=hidden", {}, MOST)
    assert "hidden" not in str(error.value)
    assert "127.0.0.1" in str(error.value)
