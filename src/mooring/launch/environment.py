"""What a server process gets to see: its environment, and the program that is run in it.

Called by ``launch.process``. A server inherits only names listed here, so that neither the daemon's secrets nor another
server's reach it; everything else is declared in ``env`` or ``secrets``. It never reads secrets from anywhere itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from mooring.errors import LaunchMissing

PERSON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR")
"""Who runs it, and where that person's programs and files are."""

PERSON_PREFIXES = ("LC_", "XDG_")

NETWORK = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
"""How this machine reaches others: without these nothing works behind a company's proxy."""

REGISTRIES = (
    "PIP_CERT",
    "PIP_CONFIG_FILE",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "UV_CACHE_DIR",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_FIND_LINKS",
    "UV_INDEX_URL",
    "UV_NATIVE_TLS",
    "UV_PYTHON_INSTALL_MIRROR",
    "UV_SYSTEM_CERTS",
    "npm_config_cache",
    "npm_config_cafile",
    "npm_config_registry",
    "npm_config_userconfig",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_USERCONFIG",
)
"""Where uvx and npx get packages from. Places only: user names, passwords and tokens for them are declared."""

INHERITED = frozenset((*PERSON, *NETWORK, *REGISTRIES))

BESIDE = os.path.dirname(sys.executable)
"""The folder of the interpreter that runs Mooring."""

FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"

INSTALL = {
    "uv": "install uv: https://docs.astral.sh/uv/getting-started/installation/",
    "npm": "install Node.js, which brings it: https://nodejs.org/",
    "bun": "install Bun: https://bun.sh/",
    "deno": "install Deno: https://deno.com/",
    "pipx": "install pipx: https://pipx.pypa.io/",
    "docker": 'install Docker (https://docs.docker.com/engine/install/), or Podman and set command = "podman"',
    "podman": "install Podman: https://podman.io/docs/installation",
    "": "install it, give its full path as command, or add its folder to PATH in the server's env",
}

BROUGHT_BY = {"uvx": "uv", "npx": "npm", "node": "npm", "bunx": "bun"}


def child_environment(
    declared: Mapping[str, str], secrets: Mapping[str, str], inherited: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a server: safe names out of ``inherited``, then ``declared``, then ``secrets``. Programs
    that were installed beside Mooring (uvx, say) are found last, whoever started the daemon with whatever PATH."""
    environment = {name: value for name, value in inherited.items() if _is_safe(name)}
    environment["PATH"] = os.pathsep.join((environment.get("PATH", FALLBACK_PATH), BESIDE))
    return {**environment, **declared, **secrets}


def _is_safe(name: str) -> bool:
    return name in INHERITED or name.startswith(PERSON_PREFIXES)


def find_command(command: str, environment: Mapping[str, str], cwd: str) -> str:
    """The absolute path of the program, looked up on the PATH of ``environment``, or from ``cwd`` when it has a slash.

    Raises LaunchMissing naming what was looked for, where, and how to get it.
    """
    path = environment.get("PATH", FALLBACK_PATH)
    folders = [""] if "/" in command else path.split(os.pathsep)
    candidates = [os.path.join(cwd, folder, command) for folder in folders]
    for candidate in candidates:
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    split = " What follows the program belongs in args." if " " in command else ""
    if "/" in command:
        state = "is not an executable file" if os.path.exists(candidates[0]) else "does not exist"
        message = f'The command "{candidates[0]}" {state}. Check command and cwd of the server.{split}'
    else:
        advice = INSTALL.get(BROUGHT_BY.get(command, command), INSTALL[""])
        message = f'The command "{command}" was not found; {advice}.{split} Searched PATH: {path}'
    raise LaunchMissing(message, command=command)
