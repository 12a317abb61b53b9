"""An image registry with one image, as much of one as ``pull`` needs. Loopback only; remembers what it was asked, and
may be told to be slow or to break off."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mooring.testing import containers

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """Where it listens, the paths it was asked for, and how it behaves."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[str] = []
        self.open = threading.Event()
        """Cleared, blobs are not sent before it is set."""
        self.open.set()
        self.breaks_off = False
        """Every blob ends in its middle."""
        self.has_nothing = False
        """Every image is unknown."""


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _contents(layer: bytes, config: dict[str, Any]) -> tuple[bytes, dict[str, bytes]]:
    """The manifest, and every blob by its digest."""
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        "history": [{"created_by": "the tests"}],  # an image that is built on needs one
    }
    written = json.dumps(settings).encode()
    kinds = (("container.image.v1+json", written), ("image.rootfs.diff.tar", layer))
    described = [
        {"mediaType": f"application/vnd.docker.{kind}", "size": len(blob), "digest": _digest(blob)}
        for kind, blob in kinds
    ]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
    return json.dumps(manifest).encode(), {_digest(written): written, _digest(layer): layer}


@contextmanager
def registry(layer: bytes | None = None, config: dict[str, Any] | None = None) -> Iterator[Registry]:
    """Serve ``<address>/<any name>:<any tag>``, but nothing whose name has "missing" in it. The image has one
    ``layer``, a tar file, and what its ``config`` says; without them nothing is in it."""
    user = f"{containers.USER}:{containers.USER}"
    manifest, blobs = _contents(layer or containers.empty(), config or {"User": user})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found.asked.append(path)
            last = path.rpartition("/")[2]
            if path == "/v2/":
                self._send(200, b"{}", "application/json")
            elif "missing" in path or found.has_nothing:
                error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self._send(404, json.dumps(error).encode(), "application/json")
            elif "/manifests/" in path:
                self._send(200, manifest, MANIFEST)
            else:
                found.open.wait()
                self._send(200, blobs[last], "application/octet-stream")

        do_HEAD = do_GET

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("docker-content-digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                cut = found.breaks_off and kind == "application/octet-stream"
                self.close_connection = self.close_connection or cut
                try:
                    self.wfile.write(body[: len(body) // 2] if cut else body)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True  # whoever asked has been killed

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Registry(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        found.open.set()
        server.shutdown()
        thread.join()
        server.server_close()
