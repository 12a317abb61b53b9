"""Who is calling: one HTTP request's credentials to a principal, or a refusal.

The fronts call it on every request, before they look at the body; ``serve.app`` hands it in. Reads memory only. Never
tells a stranger what exists: an unknown workspace and a foreign one get the same words, and the reason goes to the
events. What a principal may do is ``access.policy``'s business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

import msgspec

from mooring.access.keys import PREFIX, Keys
from mooring.config.plan import Workspace
from mooring.errors import MooringError, Refused, Unauthenticated
from mooring.nouns import Principal
from mooring.observe.events import Event

if TYPE_CHECKING:
    from asyncio import Future

    from mooring.access.identity import Identity

QUIET = 60.0
"""Seconds in which further failures of one peer are counted instead of reported."""
PEERS = 1024
"""Peers whose failures are remembered, by kind; beyond it the memory starts over."""


class _Failures(msgspec.Struct):
    """What one peer did since its last report."""

    reported_at: float
    unreported: int = 0


class Login:
    """The login callable of the fronts. Failures are reported at a limited rate but never slow anybody down: peers
    behind one address share it, and 256 random bits cannot be guessed."""

    def __init__(
        self, keys: Keys, workspaces: Callable[[], Mapping[str, Workspace]], clock: Callable[[], float] = time.time
    ) -> None:
        """``workspaces``: those of the plan in force, asked anew each time."""
        self.identity: Identity | None = None
        """Who knows those who come without a key, where the configuration names issuers."""
        self._keys = keys
        self._workspaces = workspaces
        self._clock = clock
        self._failures: dict[tuple[str, str], _Failures] = {}
        """By peer and kind of refusal."""

    def __call__(
        self, authorization: str | None, workspace: str | None, variant: str | None, peer: str
    ) -> Principal | Future[None]:
        """``authorization``: the header's value; ``workspace``, ``variant``: what the path names, if it does; ``peer``:
        the caller's IP address. A future has to be waited for before asking again. Raises Unauthenticated when no valid
        key came, Refused when a valid key does not open what the path names, Unavailable when it cannot be checked."""
        if authorization is None:
            return self._anonymous(workspace, variant, peer)
        scheme, _, token = authorization.strip().partition(" ")
        if scheme.lower() != "bearer":
            self._fail(Unauthenticated(), "not a bearer token", peer)
        principal = self._holder(token.strip(), workspace, peer)
        if not isinstance(principal, Principal):
            return principal
        if workspace is not None and workspace != principal.workspace:
            self._fail(Refused(), "the key is for another workspace", peer, principal)
        if principal.workspace not in self._workspaces():
            # 403 and not 401: the key is genuine, and a 401 would send clients off to look for an OAuth server.
            self._fail(Refused(), "the key's workspace is not in the configuration", peer, principal)
        return principal if variant is None else self._bare(principal, variant, peer)

    def _holder(self, token: str, workspace: str | None, peer: str) -> Principal | Future[None]:
        """Whose a token is: a key, or what an issuer gave."""
        if self.identity is None or token.startswith(PREFIX):
            try:
                return self._keys.principal(token)
            except Unauthenticated as error:
                self._fail(error, "unknown or expired key", peer)
        from mooring.access.identity import Rejected  # only where there are issuers

        try:
            return self.identity.principal(token, workspace)
        except Rejected as rejected:
            self._fail(rejected.error, str(rejected), peer, rejected.principal)

    def _bare(self, principal: Principal, variant: str, peer: str) -> Principal:
        """The principal at the endpoint of one variant, which is for keys that are restricted to it, and for our own
        processes."""
        if principal.variant != variant and not (principal.ours and principal.variant is None):
            self._fail(Refused(), "the key is not restricted to the variant of the path", peer, principal)
        mounts = self._workspaces()[principal.workspace].mounts
        if not any(mount.variant == variant for mount in mounts):
            self._fail(Refused(), "the key's variant is not in its workspace", peer, principal)
        return msgspec.structs.replace(principal, bare=True, variant=variant)

    def _anonymous(self, workspace: str | None, variant: str | None, peer: str) -> Principal:
        """The principal of a request without credentials, where the workspace allows that from this machine."""
        workspaces = self._workspaces()
        if workspace is None and len(workspaces) == 1:
            workspace = next(iter(workspaces))
        allowed = workspace is not None and workspace in workspaces and workspaces[workspace].anonymous
        if workspace is None or variant is not None or not allowed or not is_loopback(peer):
            if self.identity is not None:
                raise Unauthenticated  # every login begins like this
            self._fail(Unauthenticated(), "no key", peer)
        return Principal(f"anonymous:{workspace}", workspace)

    def _fail(self, error: MooringError, reason: str, peer: str, principal: Principal | None = None) -> NoReturn:
        """Report (``key.refused``, the token is not in it) unless this peer was reported just now, and raise."""
        now, place = self._clock(), (peer, error.kind)
        past = self._failures.get(place)
        if past and now - past.reported_at < QUIET:
            past.unreported += 1
            raise error
        if past is None and len(self._failures) >= PEERS:
            self._failures.clear()
        self._failures[place] = _Failures(now)
        data = {"reason": reason, "peer": peer, "before": past.unreported if past else 0}
        if principal:
            data["key"] = principal.key_id
        self._keys.events.emit(Event("key.refused", now, principal.workspace if principal else "", data=data))
        raise error


def is_loopback(peer: str) -> bool:
    """Whether an address, as the socket gives it, is this machine's own."""
    address = peer.removeprefix("::ffff:")
    return address == "::1" or (address.startswith("127.") and address.count(".") == 3)
