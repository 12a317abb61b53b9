"""Who is calling, by somebody else's word: a token (JWT) of a configured issuer to a principal.

``access.login`` asks it where the configuration names issuers and the token is no key of ours. A token that was
checked is remembered by its hash until it ends, so that a further request costs what a key costs. Keys of issuers are
fetched by tasks of their own, one an issuer, and at most so often; who needs them waits, and nobody else does. Never
keeps a token, and never tells a stranger why: the reasons go to the events.

Source: MCP 2026-07-28 "Authorization"; RFC 6750, 7519, 8707, 8725.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from mooring.access import claims as saying
from mooring.access.claims import Said
from mooring.config.plan import Issuer
from mooring.errors import InsufficientScope, MooringError, Refused, Unauthenticated, Unavailable
from mooring.nouns import Principal
from mooring.observe.events import Event, Events

if TYPE_CHECKING:
    from mooring.access.tokens import KeySet

FETCH = 10.0
"""Seconds for all requests of one fetch of keys."""
AGAIN = 30.0
"""Seconds after which a key that nobody knows is reason to fetch the keys again."""
AFTER_FAILURE = 5.0
"""Seconds after which keys that could not be had are tried again, when somebody needs them."""
REFRESH = 900.0
"""Seconds after which keys are fetched again without need: a key that was withdrawn ends what it signed."""
LONGEST = 16 << 10
"""Characters of a token."""
MAX_TOKENS = 10_000
"""Tokens that are remembered; beyond it the oldest are checked again."""
MAX_SHOWN = 200
"""Characters of a stranger's own words in an event."""
_BUSY = "Who you are cannot be checked now; try again in a moment."

Pair = tuple[str, str]
"""Key id and workspace of a principal."""


class Rejected(Exception):
    """``error`` is for the caller, the text for whoever runs Mooring."""

    def __init__(self, error: MooringError, reason: str, principal: Principal | None = None) -> None:
        super().__init__(reason)
        self.error = error
        self.principal = principal


class _Known(msgspec.Struct, frozen=True):
    """A token that was checked."""

    issuer: str
    claims: Mapping[str, Any]
    until: float
    """Epoch seconds."""
    principals: dict[str, Principal]
    lacking: tuple[str, ...] = ()

    def at(self, workspace: str | None) -> Principal | None:
        """Who its holder is in ``workspace``, or where it leads to first."""
        return self.principals.get(workspace) if workspace else next(iter(self.principals.values()), None)


class _Source:
    """An issuer, and its keys as far as they are known. Times are those of the clock given."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.keys: KeySet | None = None
        self.failure = ""
        """Why the last fetch brought nothing."""
        self.tried_at = float("-inf")
        self.fetching: asyncio.Task[None] | None = None


class Identity:
    """All issuers of the configuration. ``apply`` says which."""

    def __init__(
        self,
        events: Events,
        create_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.on_ended: list[Callable[[str, str], None]] = []
        """Called with key id and workspace of somebody who may come in no more: end their sessions."""
        self.on_expired: list[Callable[[str, str], None]] = []
        """Called when the last token of somebody has ended: end their streams. A session stays for a new token."""
        self.changed = asyncio.Event()
        """Set whenever a token came that ends by itself; ``access.expiry`` clears it."""
        self._events = events
        self._create_task = create_task
        self._clock = clock
        self._issuers: tuple[Issuer, ...] = ()
        self._base = ""
        self._sources: dict[str, _Source] = {}
        self._known: dict[bytes, _Known] = {}
        self._until: dict[Pair, float] = {}
        """When the last token of each ends."""

    def apply(self, issuers: tuple[Issuer, ...], base: str) -> None:
        """These hold from now on. ``base``: this gateway's own URL. Who is let in no more, or otherwise than before,
        is ended at once."""
        if (issuers, base) == (self._issuers, self._base):
            return  # what is not known of somebody just now is no reason to end them
        self._issuers = issuers
        before, former = self._granted(), self._sources
        self._sources = {issuer.url: self._source(former.get(issuer.url), issuer, base) for issuer in issuers}
        self._base = base
        self._known = {
            hashed: msgspec.structs.replace(
                known, principals=saying.principals(known.claims, self._sources[known.issuer].issuer, base)
            )
            for hashed, known in self._known.items()
            if known.issuer in former and self._sources.get(known.issuer) is former[known.issuer]
        }
        now = self._granted()
        for pair in [pair for pair in self._until if now.get(pair) is None or now[pair] != before.get(pair)]:
            del self._until[pair]
            for ended in self.on_ended:
                ended(*pair)

    def principal(self, token: str, workspace: str | None) -> Principal | asyncio.Future[None]:
        """Who holds this token, in ``workspace`` or where it leads to first; or what has to be waited for before asking
        again. Raises Rejected."""
        hashed = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(hashed)
        if known is None or self._clock() >= known.until:
            checked = self._checked(token, hashed)
            if isinstance(checked, asyncio.Future):
                return checked
            known = checked
        source = self._sources[known.issuer]
        if self._clock() - source.tried_at >= REFRESH:
            self._fetch(source)
        found = known.at(workspace)
        return found or self._refuse(known, source.issuer)

    def expire(self) -> float | None:
        """End what tokens that have expired since the last time have opened; the seconds until the next one does."""
        now = self._clock()
        for pair in [pair for pair, until in self._until.items() if until <= now]:
            del self._until[pair]
            for expired in self.on_expired:
                expired(*pair)
        return min((until - now for until in self._until.values()), default=None)

    def _refuse(self, known: _Known, issuer: Issuer) -> NoReturn:
        who = saying.key_id(saying.subject(known.claims), issuer.name)
        if known.lacking:
            missing = " ".join(known.lacking)
            raise Rejected(InsufficientScope(issuer.scopes), f"the token of {who} has no scope {missing}")
        raise Rejected(
            Refused(), f"no admission of {issuer.name} covers {who} here", next(iter(known.principals.values()), None)
        )

    def _checked(self, token: str, hashed: bytes) -> _Known | asyncio.Future[None]:
        said = saying.peek(token) if len(token) <= LONGEST else None
        if said is None:
            raise Rejected(Unauthenticated(), "neither a key nor an identity token")
        source = self._sources.get(said.iss)
        if source is None:
            raise Rejected(Unauthenticated(), f"a token of an issuer that is not configured: {said.iss[:MAX_SHOWN]!r}")
        issuer = source.issuer
        if said.alg not in issuer.algorithms:
            raise Rejected(
                Unauthenticated(), f"a token signed with {said.alg[:MAX_SHOWN]!r}, which {issuer.name} may not"
            )
        keys = source.keys
        if keys is None or not keys.has(said.kid, said.alg):
            return self._wanted(source, said)
        from mooring.access.tokens import Untrue  # loaded with the first keys

        try:
            claims = keys.verified(token, said.kid, said.alg, issuer, saying.audiences(issuer, self._base))
            if not saying.subject(claims):
                raise Untrue("its subject cannot be shown")
        except Untrue as error:
            raise Rejected(Unauthenticated(), f"a token of {issuer.name}: {str(error)[:MAX_SHOWN]}") from None
        return self._remember(hashed, claims, issuer)

    def _remember(self, hashed: bytes, claims: Mapping[str, Any], issuer: Issuer) -> _Known:
        lacking = saying.lacking(claims, issuer)
        principals = {} if lacking else saying.principals(claims, issuer, self._base)
        known = _Known(issuer.url, claims, float(claims["exp"]) + issuer.leeway, principals, lacking)
        if len(self._known) >= MAX_TOKENS:
            now = self._clock()
            self._known = {each: it for each, it in self._known.items() if it.until > now}
        while len(self._known) >= MAX_TOKENS:
            del self._known[next(iter(self._known))]
        self._known[hashed] = known
        for principal in principals.values():
            pair = principal.key_id, principal.workspace
            self._until[pair] = max(known.until, self._until.get(pair, 0.0))
            self.changed.set()
        return known

    def _wanted(self, source: _Source, said: Said) -> asyncio.Future[None]:
        """A key is needed that is not here: the fetch to wait for, unless there was one just now."""
        if source.fetching is not None:
            return source.fetching
        age = self._clock() - source.tried_at
        if age >= (AFTER_FAILURE if source.failure else AGAIN):
            return self._fetch(source)
        if source.failure:
            reason = f"the keys of {source.issuer.name} cannot be had: {source.failure}"
            raise Rejected(Unavailable(_BUSY), reason)
        shown = "no key" if said.kid is None else repr(said.kid[:MAX_SHOWN])
        raise Rejected(Unauthenticated(), f"{source.issuer.name} has no key for the token, which names {shown}")

    def _fetch(self, source: _Source) -> asyncio.Task[None]:
        if source.fetching is None:
            source.tried_at = self._clock()
            source.fetching = self._create_task(self._fetched(source))
        return source.fetching

    async def _fetched(self, source: _Source) -> None:
        try:
            keys, why = await _published(source.issuer), ""
        except Unavailable as error:
            keys, why = None, error.message
        finally:
            source.fetching = None
        source.tried_at = self._clock()
        if why != source.failure:
            source.failure = why
            data = {"issuer": source.issuer.name, **({"reason": why} if why else {})}
            self._events.emit(Event("identity.failed" if why else "identity.recovered", self._clock(), data=data))
        if keys is not None and keys != source.keys:
            # What a key that is gone has signed is worth nothing; all else is checked once more.
            source.keys = keys
            url = source.issuer.url
            self._known = {hashed: known for hashed, known in self._known.items() if known.issuer != url}

    def _source(self, former: _Source | None, issuer: Issuer, base: str) -> _Source:
        """An issuer of the new configuration: as it is known already, where it takes the same tokens."""
        if former is None or base != self._base or not _same_tokens(former.issuer, issuer):
            return _Source(issuer)
        former.issuer = issuer
        return former

    def _granted(self) -> dict[Pair, Principal]:
        """Everybody whom a token lets in."""
        now = self._clock()
        return {
            (principal.key_id, principal.workspace): principal
            for known in self._known.values()
            if known.until > now
            for principal in known.principals.values()
        }


async def _published(issuer: Issuer) -> KeySet:
    """Raises Unavailable."""
    try:
        async with asyncio.timeout(FETCH):
            # Libraries for HTTP and cryptography: a tenth of a second in which calls go on.
            jwks = await asyncio.to_thread(import_module, "mooring.wire.jwks")
            tokens = await asyncio.to_thread(import_module, "mooring.access.tokens")
            return tokens.KeySet(await jwks.published(issuer.url, issuer.jwks))
    except TimeoutError:
        raise Unavailable(f"{issuer.jwks or issuer.url} did not answer within {FETCH:g} s") from None


def _same_tokens(one: Issuer, other: Issuer) -> bool:
    """Whether two definitions take the same tokens; who they let in where may differ."""
    return msgspec.structs.replace(one, admit=()) == msgspec.structs.replace(other, admit=())
