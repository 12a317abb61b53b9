"""Files that must never be half written or readable by others, and text that people wrote. Called by the secret store,
the editor and whoever reads a configuration."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from mooring.errors import ConfigError

FilePath = str | os.PathLike[str]
_BYTE_ORDER_MARK = "\ufeff"


def read_text(file: FilePath) -> str:
    """What a UTF-8 file says, without the byte order mark that editors on Windows put in front; line ends stay. Raises
    OSError and UnicodeDecodeError."""
    with open(file, "rb") as handle:
        return handle.read().decode().removeprefix(_BYTE_ORDER_MARK)


def write_atomically(file: FilePath, content: bytes, *, mode: int) -> None:
    """Replace ``file``: a reader sees the old content or the new, and a crash leaves one of them. A symbolic link
    stays, what it points to is replaced."""
    target = os.path.realpath(file)
    descriptor, temporary = _temporary(target)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            os.fchmod(handle.fileno(), mode)
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    folder = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def held(folder: FilePath) -> Generator[None]:
    """Nobody else who asks for it is within this block for the same folder at the same time; waits for them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_once(file: FilePath, content: bytes) -> None:
    """Create ``file``, 0600, with all of ``content``, unless it is there or somebody else makes it just now."""
    descriptor, temporary = _temporary(file)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        with suppress(FileExistsError):
            os.link(temporary, file)
    finally:
        os.unlink(temporary)


def _temporary(file: FilePath) -> tuple[int, str]:
    """A new file beside ``file``, 0600, open for writing. Not ``tempfile``, whose import would slow every start."""
    folder, name = os.path.split(file)
    beside = os.path.join(folder, f".{name}.{os.urandom(8).hex()}")
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), beside


def mode_of(file: FilePath, default: int) -> int:
    """The permission bits of ``file``; ``default`` when it does not exist."""
    try:
        return stat.S_IMODE(os.stat(file).st_mode)
    except FileNotFoundError:
        return default


def check_private(file: FilePath) -> None:
    """Raises ConfigError when group or others may read or write ``file``."""
    if os.stat(file).st_mode & 0o066:
        raise ConfigError(f"others may read it; run: chmod 600 {file}", file=str(file))
