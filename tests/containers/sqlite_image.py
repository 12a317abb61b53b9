"""The image ``docker.io/mcp/sqlite`` of the tests: this machine's Python, its libraries, and the real server."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from python_image import PYTHON, with_python

IMAGE = "docker.io/mcp/sqlite"
VOLUME = "mcp-sqlite"
CONFIG: dict[str, Any] = {
    "Entrypoint": [PYTHON, "-c", "from mcp_server_sqlite import main; main()"],
    "Env": ["PATH=/usr/bin", "PYTHONPATH=/server"],
}


def layer(folder: Path) -> bytes:
    """A tar file with the server; ``folder`` is for its packages, which are downloaded."""
    install = ("uv", "pip", "install", "-q", "--target", str(folder), "--compile-bytecode")
    program = Path(sys.executable).parent / install[0]
    subprocess.run([program, *install[1:], "mcp-server-sqlite", "mcp<2"], check=True, timeout=300)
    content = io.BytesIO(with_python(folder))
    with tarfile.open(fileobj=content, mode="a") as tar:
        tar.add(folder, "server")
    return content.getvalue()
