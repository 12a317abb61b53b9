"""Tokens of a real authorization server on this machine: which are taken, what a stranger can cause, what it costs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest

from mooring.access import identity as identity_module
from mooring.access.expiry import expiring
from mooring.access.identity import AFTER_FAILURE, AGAIN, MAX_TOKENS, REFRESH, Identity, Rejected
from mooring.access.keys import Keys
from mooring.access.login import Login
from mooring.config.plan import Admission, Issuer, Workspace
from mooring.errors import InsufficientScope, Refused, Unauthenticated, Unavailable
from mooring.nouns import Principal
from mooring.observe.events import Event, Events
from mooring.store.sqlite import MEMORY, SqliteStore
from mooring.tasks import Tasks
from mooring.testing.authorization import AuthorizationServer
from mooring.testing.signing import Signer

BASE = "https://mooring.example"
AUD = f"{BASE}/mcp"
LIMIT = 30.0
ALICE = Principal("jwt:alice@company", "a")


class Gate:
    """An identity, the authorization server of its one issuer, and what happened."""

    def __init__(self, guardian: AuthorizationServer, tasks: Tasks) -> None:
        self.guardian = guardian
        self.ahead = 0.0
        self.events: list[Event] = []
        self.ended: list[tuple[str, str]] = []
        self.expired: list[tuple[str, str]] = []
        self.identity = Identity(Events((self.events.append,)), tasks.create_task, lambda: time.time() + self.ahead)
        self.identity.on_ended.append(lambda *who: self.ended.append(who))
        self.identity.on_expired.append(lambda *who: self.expired.append(who))
        self.apply()

    def apply(self, *admit: Admission, base: str = BASE, **more: Any) -> None:
        issuer = Issuer("company", self.guardian.issuer, admit=admit or (Admission("a"),), **more)
        self.identity.apply((issuer,), base)

    def token(self, **claims: Any) -> str:
        return self.guardian.jwt(**{"aud": AUD, **claims})

    async def principal(self, token: str, workspace: str | None = None) -> Principal:
        found = self.identity.principal(token, workspace)
        if isinstance(found, asyncio.Future):
            await asyncio.wait((found,))
            found = self.identity.principal(token, workspace)
        assert isinstance(found, Principal)
        return found

    async def refusal(self, token: str, workspace: str | None = None) -> Rejected:
        with pytest.raises(Rejected) as caught:
            await self.principal(token, workspace)
        return caught.value

    @property
    def fetched(self) -> int:
        return len(self.guardian.asked("/jwks"))


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    async with asyncio.timeout(LIMIT), AuthorizationServer() as guardian, Tasks() as tasks:
        guardian.signer = Signer()
        yield Gate(guardian, tasks)


async def test_a_token_is_checked_once_and_known_from_then_on(gate: Gate) -> None:
    token = gate.token()
    assert isinstance(gate.identity.principal(token, None), asyncio.Future)
    assert await gate.principal(token) == ALICE
    assert gate.identity.principal(token, "a") == ALICE
    assert gate.fetched == 1
    assert gate.identity.principal(gate.token(jti="another"), None) == ALICE, "without a wait"


@pytest.mark.parametrize("alg", ["RS256", "PS384", "ES384", "ES512", "EdDSA"])
async def test_every_way_to_sign_that_is_allowed_is_known(gate: Gate, alg: str) -> None:
    gate.guardian.signer = Signer(alg)
    gate.apply(algorithms=(alg,))
    assert await gate.principal(gate.token()) == ALICE


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": 1_000_000}, "expired"),
    "not yet valid": ({"nbf": 4_000_000_000}, "not yet valid"),
    "issued in the future": ({"iat": 4_000_000_000}, "not yet valid"),
    "for somebody else": ({"aud": "https://other.example"}, "Audience"),
    "for nobody": ({"aud": None}, '"aud"'),
    "for ever": ({"exp": None}, '"exp"'),
    "about nobody": ({"sub": None}, '"sub"'),
    "about somebody who cannot be shown": ({"sub": "a\nb"}, "cannot be shown"),
    "with times that are none": ({"exp": "soon"}, "exp"),
    "of an issuer that is not ours": ({"iss": "https://other.example"}, "not configured"),
}


@pytest.mark.parametrize(("claims", "reason"), WRONG.values(), ids=WRONG)
async def test_a_signed_token_that_does_not_hold_is_refused(gate: Gate, claims: dict[str, Any], reason: str) -> None:
    rejected = await gate.refusal(gate.token(**claims))
    assert type(rejected.error) is Unauthenticated
    assert reason in str(rejected)
    assert reason not in rejected.error.message


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"alg": "none"}, "signed with 'none'"),
        ({"alg": "HS256"}, "signed with 'HS256'"),
        ({"alg": "ES384"}, "signed with 'ES384'"),
        ({"alg": "RS256"}, "has no key for the token"),
        ({"kid": "unknown"}, "which names 'unknown'"),
        ({"crit": ["x"], "x": 1}, "crit"),
    ],
)
async def test_a_token_cannot_choose_how_it_is_checked(gate: Gate, headers: dict[str, Any], reason: str) -> None:
    signer = gate.guardian.signer
    assert signer is not None
    token = gate.token()
    head = jwt.utils.base64url_encode(
        jwt.api_jws.json.dumps({"alg": "ES256", "kid": signer.kid, "typ": "JWT", **headers}).encode()
    ).decode()
    forged = ".".join((head, *token.split(".")[1:]))
    rejected = await gate.refusal(forged)
    assert type(rejected.error) is Unauthenticated
    assert reason in str(rejected)
    assert await gate.principal(token) == ALICE


async def test_the_public_key_is_no_shared_secret(gate: Gate) -> None:
    """The oldest trick: sign with HMAC, with what everybody can fetch as the secret."""
    signer = gate.guardian.signer
    assert signer is not None
    signer.published.append(
        {"kty": "oct", "kid": "shared", "alg": "HS256", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}
    )
    claims = {"iss": gate.guardian.issuer, "sub": "alice", "aud": AUD, "exp": int(time.time()) + 60}
    forged = jwt.encode(claims, "secret-secret-secret-secret-secret", "HS256", {"kid": "shared"})
    assert "signed with 'HS256'" in str(await gate.refusal(forged))
    gate.apply(algorithms=("ES256", "RS256"))
    own = Signer()
    own.kid = signer.kid
    assert "Signature verification failed" in str(await gate.refusal(own.signed(claims)))


@pytest.mark.parametrize("token", ["", "a", "a.b.c", "x" * 20_000, "é.é.é"])
async def test_what_is_no_token_causes_nothing(gate: Gate, token: str) -> None:
    assert type((await gate.refusal(token)).error) is Unauthenticated
    assert not gate.guardian.requests


async def test_a_token_without_a_key_id_needs_an_issuer_with_one_key(gate: Gate) -> None:
    claims = {"iss": gate.guardian.issuer, "sub": "alice", "aud": AUD, "exp": int(time.time()) + 60}
    signer = gate.guardian.signer
    assert signer is not None
    assert await gate.principal(signer.signed(claims, {"kid": None})) == ALICE
    signer.rotate()
    gate.apply(leeway=1.0)
    await gate.refusal(signer.signed({**claims, "jti": "2"}, {"kid": None}))


async def test_keys_that_are_not_for_signing_check_nothing(gate: Gate) -> None:
    signer = gate.guardian.signer
    assert signer is not None
    signer.published[0]["use"] = "enc"
    assert "no key for the token" in str(await gate.refusal(gate.token()))


async def test_a_short_key_checks_nothing(gate: Gate) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    weak = rsa.generate_private_key(65537, 1024)
    signer = gate.guardian.signer
    assert signer is not None
    public = jwt.algorithms.RSAAlgorithm.to_jwk(weak.public_key(), as_dict=True)
    signer.published = [{**public, "kid": "weak"}]
    claims = {"iss": gate.guardian.issuer, "sub": "alice", "aud": AUD, "exp": int(time.time()) + 60}
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = jwt.encode(claims, weak, "RS256", {"kid": "weak"})
    assert "2048" in str(await gate.refusal(token))


async def test_a_new_key_is_fetched_when_it_is_needed_and_strangers_cannot_cause_more(gate: Gate) -> None:
    signer = gate.guardian.signer
    assert signer is not None
    assert await gate.principal(gate.token()) == ALICE
    signer.rotate()
    rotated = gate.token(jti="with the new key")
    assert "no key for the token" in str(await gate.refusal(rotated)), "the keys were fetched just now"
    gate.ahead = AGAIN
    assert await gate.principal(rotated) == ALICE
    made_up = [gate.guardian.signer.signed({"iss": gate.guardian.issuer}, {"kid": f"k{n}"}) for n in range(20)]
    gate.ahead = 3 * AGAIN
    waits = [gate.identity.principal(token, None) for token in made_up]
    assert len(set(waits)) == 1, "one fetch for all"
    for token in made_up:
        await gate.refusal(token)
    assert gate.fetched == 3


async def test_a_key_that_was_withdrawn_ends_what_it_signed(gate: Gate) -> None:
    signer = gate.guardian.signer
    assert signer is not None
    token = gate.token()
    assert await gate.principal(token) == ALICE
    signer.rotate(keep=False)
    gate.ahead = REFRESH
    assert gate.identity.principal(token, None) == ALICE, "nobody waits for the look"
    async with asyncio.timeout(LIMIT):
        while gate.identity._known:
            await asyncio.sleep(0.01)
    assert type((await gate.refusal(token)).error) is Unauthenticated


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"issuer": "https://evil.example"}, "metadata of another issuer"),
        ({"jwks_uri": None}, "names no jwks_uri"),
        ({"jwks_uri": "http://192.0.2.1/keys"}, "only https"),
        ({"jwks_uri": "file:///etc/passwd"}, "only https"),
    ],
)
async def test_an_issuer_that_cannot_be_asked_is_told_to_the_operator(
    gate: Gate, broken: dict[str, Any], reason: str
) -> None:
    gate.guardian.metadata = broken
    token = gate.token()
    rejected = await gate.refusal(token)
    assert type(rejected.error) is Unavailable
    assert reason in str(rejected)
    assert reason not in rejected.error.message
    assert [event.name for event in gate.events] == ["identity.failed"]
    asked = len(gate.guardian.requests)
    await gate.refusal(token)
    assert len(gate.guardian.requests) == asked, "not asked again at once"
    gate.guardian.metadata = {}
    gate.ahead = AFTER_FAILURE
    assert await gate.principal(token) == ALICE
    assert [event.name for event in gate.events] == ["identity.failed", "identity.recovered"]


async def test_an_issuer_that_does_not_answer_is_given_up(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity_module, "FETCH", 0.2)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/keys"
        gate.apply(jwks=url)
        assert f"{url} did not answer within 0.2 s" in str(await gate.refusal(gate.token()))


async def test_keys_that_are_here_serve_on_while_the_issuer_is_away(gate: Gate) -> None:
    assert await gate.principal(gate.token()) == ALICE
    gate.guardian.moved["/jwks"] = "http://127.0.0.1:9/"
    gate.ahead = REFRESH
    assert await gate.principal(gate.token(exp=int(time.time() + 2 * REFRESH))) == ALICE
    async with asyncio.timeout(LIMIT):
        while not gate.events:
            await asyncio.sleep(0.01)
    assert "HTTP 302" in gate.events[0].data["reason"], "no redirect is followed"
    assert await gate.principal(gate.token(exp=int(time.time() + 2 * REFRESH), jti="2")) == ALICE


async def test_openid_metadata_and_a_path_in_the_issuer_are_found(gate: Gate) -> None:
    guardian = gate.guardian
    for place in ("/.well-known/openid-configuration/t1", "/t1/.well-known/openid-configuration"):
        guardian.place = place
        guardian.metadata = {"issuer": f"{guardian.issuer}/t1"}
        issuer = Issuer("company", f"{guardian.issuer}/t1", admit=(Admission("a"),), leeway=float(len(place)))
        gate.identity.apply((issuer,), BASE)
        assert await gate.principal(gate.token(iss=issuer.url, jti=place)) == ALICE


async def test_a_token_without_the_scopes_that_all_need_is_refused_with_them(gate: Gate) -> None:
    gate.apply(scopes=("mcp", "more"))
    rejected = await gate.refusal(gate.token(scope="mcp"))
    assert isinstance(rejected.error, InsufficientScope)
    assert rejected.error.scopes == ("mcp", "more")
    assert "jwt:alice@company has no scope more" in str(rejected)
    assert await gate.principal(gate.token(scope="more mcp")) == ALICE


async def test_whom_no_admission_covers_is_refused_like_at_a_foreign_workspace(gate: Gate) -> None:
    gate.apply(Admission("a", {"groups": ("docs",)}))
    nobody = await gate.refusal(gate.token(groups=[]))
    foreign = await gate.refusal(gate.token(groups=["docs"]), "b")
    assert type(nobody.error) is type(foreign.error) is Refused
    assert nobody.error.message == foreign.error.message
    assert foreign.principal == ALICE


async def test_a_change_of_admissions_holds_for_tokens_that_are_known(gate: Gate) -> None:
    gate.apply(Admission("a", {"groups": ("docs",)}), Admission("b"))
    docs, ops = gate.token(groups=["docs"]), gate.token(sub="bob")
    assert (await gate.principal(docs)).workspace == "a"
    assert (await gate.principal(ops)).workspace == "b"
    gate.apply(Admission("a", {"groups": ("docs",)}), Admission("b", {"groups": ("docs",)}))
    assert gate.ended == [("jwt:bob@company", "b")]
    assert gate.identity.principal(docs, "b") == Principal("jwt:alice@company", "b")
    assert type((await gate.refusal(ops)).error) is Refused
    gate.apply(Admission("a", {"groups": ("docs",)}, ("list",)))
    assert gate.ended[1:] == [("jwt:alice@company", "a"), ("jwt:alice@company", "b")]
    assert gate.identity.principal(docs, "a") == Principal("jwt:alice@company", "a", ("list",))
    assert gate.fetched == 1


async def test_a_change_of_something_else_ends_nobody_whose_issuer_has_new_keys(gate: Gate) -> None:
    """Their tokens are checked once more when they come."""
    signer = gate.guardian.signer
    assert signer is not None
    token = gate.token()
    assert await gate.principal(token) == ALICE
    signer.rotate()
    gate.ahead = REFRESH
    assert gate.identity.principal(token, None) == ALICE
    async with asyncio.timeout(LIMIT):
        while gate.identity._known:
            await asyncio.sleep(0.01)
    gate.apply()
    assert gate.ended == []
    gate.apply(Admission("b"))
    assert gate.ended == [("jwt:alice@company", "a")]


async def test_a_change_of_what_tokens_are_taken_ends_all(gate: Gate) -> None:
    token = gate.token()
    assert await gate.principal(token) == ALICE
    gate.apply(base="https://moved.example")
    assert gate.ended == [("jwt:alice@company", "a")]
    assert "Audience" in str(await gate.refusal(token))
    gate.identity.apply((), BASE)
    assert "not configured" in str(await gate.refusal(token))


async def test_streams_end_with_the_last_token(gate: Gate) -> None:
    now = int(time.time())
    gate.apply(leeway=0.0)
    for token in (gate.token(exp=now + 60), gate.token(exp=now + 120)):
        await gate.principal(token)
    gate.ahead = 61
    assert 50 < (gate.identity.expire() or 0) < 60
    assert gate.expired == []
    gate.ahead = 121
    assert gate.identity.expire() is None
    assert gate.expired == [("jwt:alice@company", "a")]


async def test_the_clock_that_ends_keys_ends_tokens(gate: Gate) -> None:
    gate.apply(leeway=0.0)
    ending = asyncio.create_task(expiring(gate.identity))
    await gate.principal(gate.token(exp=int(time.time()) + 2))
    async with asyncio.timeout(LIMIT):
        while not gate.expired:
            await asyncio.sleep(0.02)
    ending.cancel()


async def test_what_is_remembered_has_a_bound(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_TOKENS >= 1000
    monkeypatch.setattr(identity_module, "MAX_TOKENS", 5)
    for number in range(20):
        await gate.principal(gate.token(jti=str(number)))
    assert len(gate.identity._known) == 5


async def test_a_known_token_costs_what_a_key_costs(gate: Gate) -> None:
    """Relative to each other, at the same moment; a token is longer than a key, which the hash feels."""
    async with SqliteStore(MEMORY) as store:
        keys = Keys(store, Events())
        login = Login(keys, lambda: {"a": Workspace("a")})
        login.identity = gate.identity
        key = f"Bearer {(await keys.create('a')).key}"
        plain = gate.token()
        token = f"Bearer {plain}"
        await gate.principal(plain)

        def took(authorization: str) -> float:
            best = 9.0
            for _ in range(30):
                start = time.perf_counter()
                for _ in range(200):
                    login(authorization, None, None, "127.0.0.1")
                best = min(best, time.perf_counter() - start)
            return best / 200

        costs = took(key), took(token)
    assert costs[1] < 4 * costs[0], f"a key {costs[0] * 1e6:.1f} us, a known token {costs[1] * 1e6:.1f} us"


def test_who_names_no_issuer_loads_nothing_of_it() -> None:
    code = (
        "import sys, mooring.serve.daemon, mooring.config.resolve, mooring.config.load\n"
        "print([m for m in sys.modules if m in ('jwt', 'cryptography', 'httpx2', 'mooring.access.identity',"
        " 'mooring.access.claims', 'mooring.serve.outside', 'mooring.config.identity', 'mooring.wire.resource')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT).stdout == "[]\n"
