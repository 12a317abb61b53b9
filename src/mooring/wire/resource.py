"""This gateway as a resource of OAuth 2.1: what it says about itself, and how it asks for a token. Pure.

Used by ``wire.http_front`` where the configuration names an issuer; made by ``serve.outside``.

Source: RFC 9728; RFC 6750 section 3; MCP 2026-07-28 "Authorization".
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

import msgspec

from mooring.wire.jsonrpc import text

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class Resource(msgspec.Struct, frozen=True):
    """The endpoints below one public URL; each is a resource of its own name."""

    base: str
    """The public URL, without a slash at its end."""
    issuers: tuple[str, ...]
    scopes: tuple[str, ...] = ()
    """OAuth scopes that a client should ask for."""

    def metadata(self, path: str) -> bytes | None:
        """The document at ``path``; None when that is no place for one. Whether a workspace exists is not said."""
        if path != WELL_KNOWN and not path.startswith(f"{WELL_KNOWN}/"):
            return None
        inner = path.removeprefix(WELL_KNOWN)
        inner = inner.removeprefix(urlsplit(self.base).path)  # where a proxy serves us below a path of its own
        if inner not in ("", "/") and not _login_place(inner):
            return None
        document: dict[str, object] = {
            "resource": self.base + quote(inner.rstrip("/"), safe=_SAFE),
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
            "resource_name": "Mooring",
        }
        return text({**document, "scopes_supported": self.scopes} if self.scopes else document)

    def challenge(self, path: str) -> tuple[bytes, ...]:
        """Parameters of ``WWW-Authenticate`` at the endpoint ``path``: where the metadata is, what to ask for."""
        if not _login_place(path):
            return ()
        parts = urlsplit(self.base)
        place = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}{quote(path, safe=_SAFE)}"
        scope = (b'scope="%b"' % " ".join(self.scopes).encode(),) if self.scopes else ()
        return (b'resource_metadata="%b"' % place.encode(), *scope)


_SAFE = "/%:@-._~!$&()*+,;="


def _login_place(path: str) -> bool:
    """Whether somebody with a token can come in at an endpoint: at that of a single variant only keys do."""
    if path == "/mcp":
        return True
    match path.split("/"):
        case ["", "w", workspace, "mcp"]:
            return bool(workspace)
        case _:
            return False
