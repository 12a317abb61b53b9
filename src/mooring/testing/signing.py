"""Keys that sign identity tokens for tests, and their public halves. Needs the JWT library, and loads it when used."""

from __future__ import annotations

import json
from typing import Any

from mooring.testing.peer import JSON


class Signer:
    """Signs with its newest key. ``published`` may be changed: it is what everybody can fetch."""

    def __init__(self, alg: str = "ES256") -> None:
        self.alg = alg
        self.published: list[JSON] = []
        self.kid = ""
        self._key: Any = None
        self.rotate()

    def rotate(self, *, keep: bool = True) -> None:
        """Sign with a new key from now on. Without ``keep`` the old ones are withdrawn."""
        self._key, public = _made(self.alg)
        self.kid = f"key-{int(self.kid.removeprefix('key-') or 0) + 1}"
        kept = self.published if keep else []
        self.published = [*kept, {**public, "kid": self.kid, "use": "sig"}]

    def signed(self, claims: JSON, headers: JSON | None = None) -> str:
        """A token; ``headers`` besides ``alg`` and ``kid``, None leaves one out."""
        import jwt

        given = {name: it for name, it in {"kid": self.kid, **(headers or {})}.items() if it is not None}
        return jwt.encode(claims, self._key, self.alg, given)


def _made(alg: str) -> tuple[Any, JSON]:
    """A private key and its public half as a JWK."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from jwt.algorithms import get_default_algorithms

    if alg.startswith(("RS", "PS")):
        key: Any = rsa.generate_private_key(65537, 2048)
    elif alg == "EdDSA":
        key = ed25519.Ed25519PrivateKey.generate()
    else:
        key = ec.generate_private_key({"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}[alg]())
    return key, json.loads(get_default_algorithms()[alg].to_jwk(key.public_key()))
