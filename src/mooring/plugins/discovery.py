"""Which plugins are installed: a cheap look for entry points, then each plugin in a process of its own.

Called by ``serve.plugins`` and by ``mooring plugins``. Modules of plugins are never imported here, so that what is
cached in this process cannot lie, and a broken plugin breaks nothing. What was found is kept in a file with the stamps
of everything it depends on; a boot reads only that.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator

import msgspec

from mooring import __version__
from mooring.plugins.found import GROUP, Found, Installed, Stamp, without_clashes

FILE = "plugins.json"
SECONDS = 30.0
"""That one plugin has to be imported and to answer."""
TOGETHER = 4
"""Plugins that are looked at at the same time."""
_log = logging.getLogger(__name__)
_METADATA = (".dist-info", ".egg-info")


def known(state: str) -> Installed | None:
    """What was found last, when looking again would find the same; None when it may not. ``state``: the state folder,
    "" where nothing is kept."""
    kept = _kept(state)
    if kept is None or kept.origin != _origin() or kept.folders != folders():
        return None
    return kept if all(_same(plugin.files) for plugin in kept.plugins) else None


def discover(state: str, disabled: Iterable[str] | None = None, trace: bool = False, keep: bool = True) -> Installed:
    """Look at all plugins, and keep what is found unless told not to; blocks. Raises nothing for a plugin's fault.

    ``disabled``: names of plugins or of distributions, which are not imported; None: those of last time."""
    before = _kept(state)
    off = tuple(disabled) if disabled is not None else before.disabled if before else ()
    entries = list(_entry_points()) if any(map(_has_entry_points, folders())) else []
    plugins = tuple(_looked_at(entries, off, state, trace))
    brought = {server.name: plugin.name for plugin in plugins for server in plugin.servers}
    gone = {} if before is None else dict(before.gone)
    for plugin in () if before is None else before.plugins:
        gone |= {server.name: plugin.name for server in plugin.servers}
    installed = Installed(
        plugins=without_clashes(plugins),
        disabled=off,
        trace=trace,
        gone={server: plugin for server, plugin in gone.items() if server not in brought},
        folders=folders(),
        origin=_origin(),
    )
    if keep and state and installed != before:
        from mooring.config.files import write_atomically

        os.makedirs(state, mode=0o700, exist_ok=True)
        write_atomically(os.path.join(state, FILE), msgspec.json.encode(installed), mode=0o600)
    return installed


def folders() -> dict[str, Stamp]:
    """The folders that packages are installed in. Installing, upgrading and removing one changes its stamp."""
    found: dict[str, Stamp] = {}
    for folder in dict.fromkeys(sys.path):
        if folder.rpartition("/")[2] in ("site-packages", "dist-packages") or folder in _extra():
            try:
                status = os.stat(folder)
            except OSError:
                continue
            found[folder] = (status.st_mtime_ns, status.st_ino)
    return found


def _extra() -> tuple[str, ...]:
    """Folders of PYTHONPATH may hold packages too."""
    return tuple(os.environ.get("PYTHONPATH", "").split(os.pathsep)) if "PYTHONPATH" in os.environ else ()


def _origin() -> tuple[str, ...]:
    return (sys.prefix, sys.version, __version__)


def _kept(state: str) -> Installed | None:
    if not state:
        return None
    try:
        with open(os.path.join(state, FILE), "rb") as handle:
            return msgspec.json.decode(handle.read(), type=Installed)
    except (OSError, msgspec.DecodeError):  # none yet, or of a Mooring that kept something else
        return None


def _same(files: dict[str, Stamp]) -> bool:
    for file, stamp in files.items():
        try:
            status = os.stat(file)
        except OSError:
            return False
        if (status.st_mtime_ns, status.st_ino) != stamp:
            return False
    return True


def _has_entry_points(folder: str) -> bool:
    """Whether any package in ``folder`` has a plugin; a look at the files takes a tenth of what the library takes."""
    try:
        names = os.listdir(folder)
    except OSError:  # an archive on PYTHONPATH, or gone meanwhile
        return False
    for name in names:
        if name.endswith(_METADATA):
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), "rb") as handle:
                    if f"[{GROUP}]".encode() in handle.read():
                        return True
            except OSError:
                continue
    return False


def _entry_points() -> Iterator[tuple[str, str]]:
    """(distribution, name), sorted: the order must not depend on the disk."""
    from importlib.metadata import distributions

    found: dict[tuple[str, str], None] = {}
    for owner in distributions(path=list(folders())):
        for entry in owner.entry_points:
            if entry.group == GROUP:
                found[owner.metadata["Name"], entry.name] = None
    return iter(sorted(found))


def _looked_at(entries: list[tuple[str, str]], off: tuple[str, ...], state: str, trace: bool) -> Iterator[Found]:
    if not entries:
        return
    from concurrent.futures import ThreadPoolExecutor

    def look(entry: tuple[str, str]) -> Found:
        package, name = entry
        if name in off or package in off:
            return Found(name=name, distribution=package, skipped="it is disabled in [plugins]")
        began = time.perf_counter()
        found = _inspected(package, name, state)
        if trace:
            took = (time.perf_counter() - began) * 1000
            said = found.skipped or f"{len(found.servers)} servers, {len(found.hooks)} hooks"
            _log.info('plugin "%s" of %s: looked at in %.0f ms: %s', name, package, took, said)
        return found

    with ThreadPoolExecutor(TOGETHER) as threads:
        yield from threads.map(look, entries)


def _inspected(package: str, name: str, state: str) -> Found:
    import subprocess

    from mooring.launch.environment import child_environment

    paths = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    argv = (sys.executable, "-P", "-m", "mooring.plugins.inspection", package, name, state)
    try:
        done = subprocess.run(
            argv,
            env=child_environment(paths, {}, os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Found)
    except subprocess.TimeoutExpired:
        why = f"it was not imported within {SECONDS:g} s"
    except OSError as error:
        why = f"it could not be looked at: {error}"
    except msgspec.DecodeError:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()  # pyright: ignore[reportPossiblyUnboundVariable]
        why = f"its import ended the process (exit code {done.returncode})" + (f": {lines[-1]}" if lines else "")  # pyright: ignore[reportPossiblyUnboundVariable]
    return Found(name=name, distribution=package, skipped=why)
