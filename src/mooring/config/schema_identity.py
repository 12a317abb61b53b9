"""The tables of ``[identity]``: whose tokens are taken, and who comes in with them. Pure; see ``config.schema``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from mooring.config.durations import Seconds
from mooring.config.schema_base import Table
from mooring.nouns import Scope

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""How tokens may be signed: with a key of which the public half suffices to check it."""


class Admission(Table, frozen=True, kw_only=True):
    """Who of those that an issuer vouches for comes into which workspace. The first table that covers a token counts,
    for each workspace; where the address names no workspace, the first one of all."""

    workspace: str
    """The workspace."""
    claims: dict[str, str | tuple[str, ...]]
    """What the token must say: claim to globs, of which one has to cover the claim, or one of its values. All claims
    count; `{}` is everybody. `a.b` is `b` in `a`; `scope` is taken as words."""
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1)] = ("call", "list")
    """What it may be used for."""
    tools: tuple[str, ...] = ()
    """Globs on the names of tools that may be used; without any all of them."""
    key: str | None = None
    """Which of the workspace's `keys` says what holds for it besides."""


class Issuer(Table, frozen=True, kw_only=True):
    """An authorization server whose tokens (JWT) are taken instead of keys."""

    issuer: str
    """Its issuer identifier, exactly as it stands in tokens: `https://login.example.com`."""
    audience: tuple[str, ...] = ()
    """What tokens for Mooring name as their audience, one of these; default `gateway.public_url` and the endpoints
    below it, each for its own workspace."""
    jwks: str | None = None
    """Address of its keys; default found by its metadata."""
    algorithms: Annotated[tuple[Algorithm, ...], msgspec.Meta(min_length=1)] = ("RS256", "ES256")
    """How tokens may be signed."""
    scopes: tuple[Annotated[str, msgspec.Meta(pattern=r"^[!#-\[\]-~]+$")], ...] = ()
    """OAuth scopes that every token must have; clients are told to ask for them."""
    leeway: Seconds = Seconds(30)
    """How far its clock may be off."""
    admit: tuple[Admission, ...] = ()
    """Who comes in where; nobody else does."""

    def __post_init__(self) -> None:
        if self.leeway > 300:
            raise ValueError("leeway is for clocks that are off: at most 5 minutes")
