"""Those who come with tokens of somebody else: the parts for them, put together once a configuration names an issuer.

Made by ``serve.front``; without an issuer nothing of it is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mooring.access.expiry import expiring
from mooring.access.identity import Identity
from mooring.config.plan import Issuer
from mooring.tasks import Tasks
from mooring.wire.http_front import McpFront
from mooring.wire.http_session import HttpSession
from mooring.wire.resource import Resource

if TYPE_CHECKING:
    from mooring.serve.app import App


class Outside:
    """Keeps login and front in step with the issuers of the configuration, as long as the front is open."""

    def __init__(self, app: App, front: McpFront, tasks: Tasks) -> None:
        self._app = app
        self._front = front
        self._identity = Identity(app.events, tasks.create_task)
        self._identity.on_ended.append(self._end)
        self._identity.on_expired.append(self._silence)
        tasks.create_task(expiring(self._identity))

    def apply(self, issuers: tuple[Issuer, ...]) -> None:
        """These hold from now on, at the public URL of now."""
        base = self._app.public_url.removesuffix("/mcp")
        self._identity.apply(issuers, base)
        self._app.login.identity = self._identity if issuers else None
        self._front.resource = _resource(issuers, base) if issuers else None

    def _end(self, key_id: str, workspace: str) -> None:
        self._front.end_sessions(_of(key_id, workspace))

    def _silence(self, key_id: str, workspace: str) -> None:
        self._front.end_streams(_of(key_id, workspace))


def _resource(issuers: tuple[Issuer, ...], base: str) -> Resource:
    wanted = {issuer.scopes for issuer in issuers}
    # Issuers that want different scopes: a client asks one of them, which may not even know those of the others.
    scopes = next(iter(wanted)) if len(wanted) == 1 else ()
    return Resource(base, tuple(issuer.url for issuer in issuers), scopes)


def _of(key_id: str, workspace: str) -> Callable[[HttpSession], bool]:
    """Whether a session is somebody's in a workspace."""
    return lambda session: (session.principal.key_id, session.principal.workspace) == (key_id, workspace)
