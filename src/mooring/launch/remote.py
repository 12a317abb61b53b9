"""The launcher of remotes: nothing starts, there is a URL, and the headers that go there.

Called through ``launch.base.Launcher``. Secrets are put into headers here and nowhere else, at the moment of
connecting. It never looks whether the remote is there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar

from mooring.config.plan import Variant
from mooring.config.plan_servers import AUTHORIZATION, Launch, Remote, SecretRef
from mooring.errors import NoLauncher, StartFailed
from mooring.launch.base import Elsewhere, Url
from mooring.nouns import InstanceKey

LOCAL = ("localhost", "127.0.0.1", "::1")


class RemoteLauncher:
    """Knows where remotes are."""

    kinds: ClassVar[tuple[str, ...]] = ("remote",)

    @asynccontextmanager
    async def launch(self, variant: Variant, key: InstanceKey, secrets: Mapping[str, str]) -> AsyncGenerator[Elsewhere]:
        """See ``launch.base.Launcher``. Raises NoLauncher, and StartFailed for a header that cannot be sent."""
        launch = variant.launch
        why_not = unsupported(launch)
        if why_not or not isinstance(launch, Remote):
            raise NoLauncher(f'Server "{variant.server}" cannot be opened: {why_not}.', server=variant.server)
        headers = filled(launch, secrets)
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable() and name.isascii() and name.isprintable()):
                what = f'Server "{variant.server}": the value of the header {name} holds what no header can carry.'
                raise StartFailed(what, server=variant.server, phase="start")
        yield Elsewhere(Url(launch.url, headers, launch.transport))


def unsupported(launch: Launch) -> str:
    """Why this launcher cannot open it, "" when it can. Pure."""
    if not isinstance(launch, Remote):
        return "it has no url"
    if launch.auth == "oauth" and not private(launch.url):
        return 'auth = "oauth" needs https: anybody on the way could read the token'
    return ""


def private(url: str) -> bool:
    """Whether nobody on the way can read what is sent there. Pure."""
    from urllib.parse import urlsplit  # few servers are logged in at

    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in LOCAL


def filled(launch: Remote, secrets: Mapping[str, str]) -> dict[str, str]:
    """The headers with ``secrets`` in the place of their names, and the bearer token of ``auth``. A value that was
    filled in is not looked at again. Pure."""
    headers = {name: _fill(template, launch.secrets, secrets) for name, template in launch.headers.items()}
    if isinstance(launch.auth, SecretRef) and AUTHORIZATION in secrets:
        headers = {name: value for name, value in headers.items() if name.lower() != AUTHORIZATION}
        headers["Authorization"] = f"Bearer {secrets[AUTHORIZATION]}"
    return headers


def _fill(template: str, names: Mapping[str, SecretRef], secrets: Mapping[str, str]) -> str:
    """Optional secrets that are missing leave nothing behind."""
    found = [(template.find(f"{{{name}}}"), name) for name in names if f"{{{name}}}" in template]
    if not found:
        return template
    at, name = min(found)
    rest = template[at + len(name) + 2 :]
    return template[:at] + secrets.get(name, "") + _fill(rest, names, secrets)
