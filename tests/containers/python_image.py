"""An image with Python, made of this machine's: the interpreter, its library, pip, and what authorities are trusted.

It stands in for ``docker.io/library/python``, and other images are built on it.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

import pip

from mooring.testing import containers

PYTHON = os.path.realpath(sys.executable)
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
CONFIG: dict[str, Any] = {"Env": ["PATH=/usr/local/bin:/usr/bin", "PYTHONPATH=/tools", f"PIP_CERT={CERTIFICATES}"]}
_LEFT_OUT = ("site-packages", "test", "idlelib", "ensurepip", "turtledemo", "tkinter", "lib2to3")


def layer() -> bytes:
    """A tar file with all of it."""
    content = io.BytesIO(with_python(Path(sysconfig.get_path("purelib"))))
    with tarfile.open(fileobj=content, mode="a") as tar:
        tar.add(os.path.dirname(pip.__file__), "tools/pip", filter=_wanted)
        tar.add(CERTIFICATES, CERTIFICATES)
        for name in ("python", "python3"):
            entry = tarfile.TarInfo(f"usr/bin/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, PYTHON
            tar.addfile(entry)
    return content.getvalue()


def with_python(packages: Path | None = None) -> bytes:
    """A tar file with the interpreter and its library. ``packages``: a folder whose modules' libraries it has too."""
    content = io.BytesIO(containers.empty())
    with tarfile.open(fileobj=content, mode="a") as tar:
        tar.add(PYTHON, PYTHON)
        standard = sysconfig.get_path("stdlib")
        tar.add(standard, standard, filter=_wanted)
        modules = [*Path(standard, "lib-dynload").glob("*.so"), *(packages.rglob("*.so") if packages else ())]
        for library in _libraries([Path(PYTHON), *modules]):
            place = re.sub(r"^/(lib\d*)/", r"/usr/\1/", library)
            tar.add(os.path.realpath(library), place)
    return content.getvalue()


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.rpartition("/")[2] in _LEFT_OUT else entry


def _libraries(programs: list[Path]) -> set[str]:
    done = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False, timeout=60)
    return {match[1] for match in re.finditer(r"(?:=> |^\s+)(/\S+) \(0x", done.stdout, re.M)}
