"""From written issuers to those of the plan. Pure; used by ``config.resolve`` where there are any."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from mooring.config import names, plan
from mooring.config.fault import Fault
from mooring.config.schema_base import Path
from mooring.config.schema_identity import Admission, Issuer

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def issuers(written: Mapping[str, Issuer], workspaces: Mapping[str, plan.Workspace]) -> tuple[plan.Issuer, ...]:
    """The issuers, in their order. Raises Fault."""
    made: dict[str, plan.Issuer] = {}
    for name, issuer in written.items():
        path: Path = ("identity", name)
        _check_url(issuer.issuer, (*path, "issuer"))
        if issuer.jwks is not None:
            _check_url(issuer.jwks, (*path, "jwks"))
        if issuer.issuer in made:
            raise Fault(f'"{made[issuer.issuer].name}" is this issuer already', (*path, "issuer"))
        made[issuer.issuer] = plan.Issuer(
            name=name,
            url=issuer.issuer,
            audience=issuer.audience,
            jwks=issuer.jwks or "",
            algorithms=issuer.algorithms,
            scopes=issuer.scopes,
            leeway=float(issuer.leeway),
            admit=tuple(
                _admission(admission, workspaces, (*path, "admit", position))
                for position, admission in enumerate(issuer.admit)
            ),
        )
    return tuple(made.values())


def _admission(written: Admission, workspaces: Mapping[str, plan.Workspace], path: Path) -> plan.Admission:
    workspace = workspaces.get(written.workspace)
    if workspace is None:
        hint = names.did_you_mean(written.workspace, tuple(workspaces))
        raise Fault(f'there is no workspace "{written.workspace}"{hint}', (*path, "workspace"))
    if written.key is not None and written.key not in workspace.keys:
        # A policy that was meant and is not found would guard nothing.
        hint = names.did_you_mean(written.key, tuple(workspace.keys))
        raise Fault(f'the workspace "{workspace.name}" says nothing of a key "{written.key}"{hint}', (*path, "key"))
    claims = {claim: (globs,) if isinstance(globs, str) else globs for claim, globs in written.claims.items()}
    for claim, globs in claims.items():
        if not globs:
            raise Fault("a claim without globs is never met", (*path, "claims", claim))
    return plan.Admission(written.workspace, claims, written.scopes, written.tools, written.key or "")


def _check_url(url: str, path: Path) -> None:
    """Keys that come over a plain connection could be anybody's."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Fault(f'"{url}" is not a URL', path) from None
    if not host or parts.scheme not in ("http", "https"):
        raise Fault(f'"{url}" is not a URL; write https://...', path)
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise Fault("needs to begin with https://; http:// is for this machine only", path)
    if "@" in parts.netloc or parts.fragment:
        raise Fault("has no user, password or fragment", path)
