"""The command line that runs a process in a sandbox of bubblewrap. Pure, but for looking where links lead.

Used by ``launch.sandbox``. Inside there is what programs need to run (of ``/etc`` no more than that), an empty home and
``/tmp``, its own processes, and the paths that are declared. It gets its own user namespace without any privilege, also
when root starts it, and can make no further one.

Source: bwrap(1) 0.8.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Mapping, Sequence

from mooring.config.plan_servers import Sandbox

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store", "/gnu/store")
"""Programs and libraries."""
CONFIGURATION = (
    *("alternatives", "ca-certificates", "crypto-policies", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem"),
    *("pki/tls/openssl.cnf", "ssl/certs", "ssl/cert.pem", "ssl/openssl.cnf", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "hosts", "host.conf", "resolv.conf", "nsswitch.conf", "gai.conf", "services", "protocols"),
    *("passwd", "group", "localtime", "timezone", "locale.conf", "locale.alias", "default/locale", "os-release"),
    *("mime.types", "magic", "fonts", "pip.conf", "npmrc", "uv"),
)
"""Of ``/etc``: names, certificates, the linker, the locale, where packages are. Nothing that is anybody's secret."""
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")
"""Variables that name certificates to trust; what they name can be read inside."""
SCRATCH = 1 << 30
"""Bytes of the private home, and of ``/tmp``; both are in memory."""
ISOLATION = (
    *("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--cap-drop", "ALL"),
)

VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""Names of variables that get through a shell."""

OUTSIDE = 'trap "" TERM; while [ "$1" != -- ]; do echo 0 >"$1" || exit 126; shift; done; shift; exec "$@"'
"""Bubblewrap dies of SIGTERM and takes the server with it, at once. Here it does not, so that the server has the time
to end by itself. Enters the control groups first."""
INSIDE = ("/usr/bin/env", "--default-signal=TERM")
GATE = ("/bin/sh", "-c", 'read -r _ && exec "$@"', "mooring")
"""Waits for a line on stdin; the daemon writes it when all is there that the server needs."""


def command(
    bwrap: str,
    argv: Sequence[str],
    sandbox: Sandbox,
    environment: Mapping[str, str],
    cwd: str | None,
    *,
    gated: bool = False,
    groups: Iterable[str] = (),
) -> list[str]:
    """What to run so that ``argv`` runs inside. ``cwd``: the declared folder, None for the private home. ``gated``: it
    begins when a line comes on stdin. ``groups``: files to enter control groups by."""
    home = private_home(environment)
    network = () if sandbox.network == "open" else ("--unshare-net",)
    scratch = [option for place in ("/tmp", home) if place for option in _scratch(place)]  # noqa: S108 - its own
    shown = [option for bind in _binds(sandbox, environment, cwd) for option in bind]
    inside = (*INSIDE, *(GATE if gated else ()), *argv)
    return [
        *("/bin/sh", "-c", OUTSIDE, "mooring", *groups, "--", bwrap, *ISOLATION, *network),
        *(option for place in _system() for option in ("--ro-bind-try", place, place)),
        *("--proc", "/proc", "--dev", "/dev", *scratch, *shown, "--chdir", cwd or home or "/", "--remount-ro", "/"),
        *("--", *inside),
    ]


def private_home(environment: Mapping[str, str]) -> str:
    """Where the empty home is: at the person's own path; "" when there is none that could be hidden."""
    home = os.path.normpath(environment.get("HOME", ""))
    return home if home.startswith("/") and home.strip("/") else ""


def visible(path: str, sandbox: Sandbox, cwd: str | None) -> bool:
    """Whether a path that exists outside can be seen inside."""
    shown = (*SYSTEM, *sandbox.writable, *sandbox.readable, *((cwd,) if cwd else ()))
    return any(within(path, folder) for folder in shown)


def within(path: str, folder: str) -> bool:
    """Whether ``path`` is ``folder`` or below it."""
    return os.path.commonpath((os.path.normpath(path), folder)) == folder


def _system() -> list[str]:
    return [*SYSTEM, *(f"/etc/{name}" for name in CONFIGURATION)]


def _scratch(place: str) -> tuple[str, ...]:
    return ("--perms", "0700" if place != "/tmp" else "1777", "--size", str(SCRATCH), "--tmpfs", place)  # noqa: S108


def _binds(sandbox: Sandbox, environment: Mapping[str, str], cwd: str | None) -> list[tuple[str, str, str]]:
    """Declared paths, folders before what is in them: the narrower declaration counts."""
    certificates = [environment[name] for name in CERTIFICATES if name in environment]
    readable = {*sandbox.readable, *((cwd,) if cwd else ())} - {*sandbox.writable}
    if cwd and any(within(cwd, folder) for folder in sandbox.writable):
        readable -= {cwd} - {*sandbox.readable}
    made = [("--bind", path, path) for path in sandbox.writable]
    made += [("--ro-bind", path, path) for path in readable]
    made += [("--ro-bind-try", path, path) for path in certificates if not visible(path, sandbox, cwd)]
    return sorted(made, key=lambda bind: (bind[1].count("/"), bind))
