"""What an identity token says, and what follows from it. Pure; used by ``access.identity``.

``peek`` reads a token that nobody has checked, only to find out with which key it could be. All else is about claims
whose signature was verified.

Source: RFC 7519, RFC 8693 4.2 (``scope``).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from mooring.access.policy import matches
from mooring.config.plan import Admission, Issuer
from mooring.nouns import Principal

LONGEST_SUBJECT = 255
"""Characters, as in OpenID Connect."""
_WORDS = ("scope", "scp")
"""Claims whose text is a list of words."""


class Said(msgspec.Struct, frozen=True):
    """What an unverified token says about how to check it."""

    alg: str = ""
    kid: str | None = None
    iss: str = ""


class _Header(msgspec.Struct):
    alg: str = ""
    kid: str | None = None


class _Payload(msgspec.Struct):
    iss: str = ""


def peek(token: str) -> Said | None:
    """None when it is not a signed JWT."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        return None
    try:
        header = msgspec.json.decode(_decoded(parts[0]), type=_Header)
        return Said(header.alg, header.kid, msgspec.json.decode(_decoded(parts[1]), type=_Payload).iss)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
        return None


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def subject(claims: Mapping[str, Any]) -> str:
    """Whom the token is about; "" when it names nobody, or in a way that could not be shown."""
    sub = claims.get("sub")
    return sub if isinstance(sub, str) and len(sub) <= LONGEST_SUBJECT and sub.isprintable() else ""


def key_id(subject: str, issuer: str) -> str:
    """What stands for ``subject`` where the id of a key stands for its holder; no id of another kind begins so."""
    return f"jwt:{subject}@{issuer}"


def lacking(claims: Mapping[str, Any], issuer: Issuer) -> tuple[str, ...]:
    """The OAuth scopes that every token of the issuer must have, and that this one has not."""
    has = {word for claim in _WORDS for word in values(claims, claim)}
    return tuple(scope for scope in issuer.scopes if scope not in has)


def principals(claims: Mapping[str, Any], issuer: Issuer, base: str) -> dict[str, Principal]:
    """Workspace to who the token's subject is there, in the order of the configuration. ``base``: this gateway's own
    URL. A token that was made for the endpoint of one workspace is good for that one only."""
    who = key_id(subject(claims), issuer.name)
    found: dict[str, Principal] = {}
    for admission in issuer.admit:
        workspace = admission.workspace
        if (
            workspace not in found
            and covers(admission, claims)
            and (issuer.audience or _meant(claims, base, workspace))
        ):
            found[workspace] = Principal(who, workspace, admission.scopes, None, admission.tools, admission.key)
    return found


def covers(admission: Admission, claims: Mapping[str, Any]) -> bool:
    """Whether the claims are what an admission asks for."""
    return all(
        any(matches(value, globs) for value in values(claims, claim)) for claim, globs in admission.claims.items()
    )


def values(claims: Mapping[str, Any], claim: str) -> tuple[str, ...]:
    """The values of a claim as text; none for one that is not there, or is a table."""
    found = _found(claims, claim)
    if isinstance(found, str) and claim in _WORDS:
        return tuple(found.split())
    several = cast("list[object]", found) if isinstance(found, list) else [found]
    return tuple(text for each in several if (text := _text(each)) is not None)


def audiences(issuer: Issuer, base: str) -> tuple[str, ...]:
    """What a token may name as its audience."""
    workspaces = dict.fromkeys(each.workspace for each in issuer.admit)
    own = dict.fromkeys(address for workspace in workspaces for address in _own(base, workspace))
    return issuer.audience or tuple(own)


def _own(base: str, workspace: str) -> tuple[str, ...]:
    """The addresses under which a workspace is reached; libraries write the first with and without a slash."""
    return base, f"{base}/", f"{base}/mcp", f"{base}/w/{workspace}/mcp"


def _meant(claims: Mapping[str, Any], base: str, workspace: str) -> bool:
    return not set(_own(base, workspace)).isdisjoint(values(claims, "aud"))


def _found(claims: Mapping[str, Any], claim: str) -> object:
    """By its name, or else by the names of tables with dots between them."""
    if claim in claims:
        return claims[claim]
    at: object = claims
    for part in claim.split("."):
        if not isinstance(at, dict):
            return None
        at = cast("dict[str, object]", at).get(part)
    return at


def _text(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None
