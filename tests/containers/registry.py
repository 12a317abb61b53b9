"""An image registry with one image, as much of one as ``pull`` needs. Loopback only; remembers what it was asked."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mooring.testing import containers

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry:
    """Where it listens, and the paths it was asked for."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.asked: list[str] = []


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _contents() -> tuple[bytes, dict[str, bytes]]:
    """The manifest, and every blob by its digest."""
    layer = containers.empty()
    user = f"{containers.USER}:{containers.USER}"
    settings = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"User": user},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    config = json.dumps(settings).encode()
    kinds = (("container.image.v1+json", config), ("image.rootfs.diff.tar", layer))
    described = [
        {"mediaType": f"application/vnd.docker.{kind}", "size": len(blob), "digest": _digest(blob)}
        for kind, blob in kinds
    ]
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": described[1:]}
    return json.dumps(manifest).encode(), {_digest(config): config, _digest(layer): layer}


@contextmanager
def registry() -> Iterator[Registry]:
    """Serve ``<address>/<any name>:<any tag>``, but nothing whose name has "missing" in it."""
    manifest, blobs = _contents()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.asked.append(self.path)
            last = self.path.rpartition("/")[2]
            if self.path == "/v2/":
                self._send(200, b"{}", "application/json")
            elif "missing" in self.path:
                error = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
                self._send(404, json.dumps(error).encode(), "application/json")
            elif "/manifests/" in self.path:
                self._send(200, manifest, MANIFEST)
            else:
                self._send(200, blobs[last], "application/octet-stream")

        do_HEAD = do_GET

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.send_header("docker-content-digest", _digest(body))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Registry(f"127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
