"""Identity tokens and the keys that they are signed with: everything that needs the JWT library.

Imported by ``access.identity`` when the first token comes, and not at boot: the cryptography library takes a while.

Source: RFC 7515, 7517, 7519, 8725 (best practices); MCP 2026-07-28 "Authorization".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jwt import PyJWK, PyJWT
from jwt.exceptions import PyJWTError

from mooring.config.plan import Issuer

LARGEST_SET = 100
"""Keys of one issuer that are looked at."""
_FAMILIES = {"RS": ("RSA", None), "PS": ("RSA", None), "ES": ("EC", None), "Ed": ("OKP", "Ed25519")}
"""First letters of an algorithm to the type of key that it takes, and its curve."""
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_REQUIRED = ["exp", "iss", "aud", "sub"]
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth", "k")
"""Members of a key that nobody publishes on purpose, and that nothing here may use."""
_jwt = PyJWT({"enforce_minimum_key_length": True})


class Untrue(Exception):
    """A token that does not hold; the text is for whoever runs Mooring."""


class KeySet:
    """The public keys of an issuer."""

    def __init__(self, published: Iterable[Mapping[str, Any]]) -> None:
        """``published``: the members of its ``keys``; what is not for signatures, or not public, is left out."""
        self._published = [
            {name: member for name, member in key.items() if name not in _PRIVATE}
            for key in list(published)[:LARGEST_SET]
            if key.get("use", "sig") == "sig" and key.get("kty") in ("RSA", "EC", "OKP")
        ]
        self._made: dict[tuple[int, str], PyJWK] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and self._published == other._published

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def has(self, kid: str | None, alg: str) -> bool:
        """Whether one of them could have signed such a token."""
        return bool(self._candidates(kid, alg))

    def verified(
        self, token: str, kid: str | None, alg: str, issuer: Issuer, audiences: Iterable[str]
    ) -> dict[str, Any]:
        """The claims of ``token``. The algorithm is bound to the key, whatever the token says. Raises Untrue."""
        why = "it is signed with no key of its issuer"
        for number in self._candidates(kid, alg):
            try:
                return _jwt.decode(
                    token,
                    self._key(number, alg),
                    algorithms=[alg],
                    audience=list(audiences),
                    issuer=issuer.url,
                    leeway=issuer.leeway,
                    options={"require": _REQUIRED},
                )
            except (PyJWTError, ValueError, TypeError) as error:
                why = str(error)
        raise Untrue(why)

    def _candidates(self, kid: str | None, alg: str) -> list[int]:
        """Positions of the keys it could be; a token without a key id must have come from an issuer with one."""
        fit = [
            number
            for number, key in enumerate(self._published)
            if key.get("alg", alg) == alg and _fits(key, alg) and kid in (None, key.get("kid"))
        ]
        return fit if kid is not None or len(fit) == 1 else []

    def _key(self, number: int, alg: str) -> PyJWK:
        made = self._made.get((number, alg))
        if made is None:
            made = self._made[number, alg] = PyJWK(self._published[number], alg)
        return made


def _fits(key: Mapping[str, Any], alg: str) -> bool:
    kind, curve = _FAMILIES[alg[:2]]
    return key.get("kty") == kind and (curve or _CURVES.get(alg)) in (None, key.get("crv"))
