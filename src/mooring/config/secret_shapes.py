"""What looks like a secret. Pure; used where configurations are imported and shown. Errs on the side of secret: a
value too many in the secret store does no harm."""

from __future__ import annotations

import re

_WORDS = frozenset(("AUTH", "AUTHORIZATION", "BEARER", "COOKIE", "CREDENTIAL", "CREDENTIALS", "PAT", "PWD", "PASS"))
_ENDINGS = ("TOKEN", "TOKENS", "KEY", "KEYS", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE")
_ELSEWHERE = frozenset(("FILE", "PATH", "DIR", "URL", "URI", "ID", "NAME"))
"""Last words that say the value only tells where the secret is."""
_SHAPES = re.compile(
    r"(gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|pypi-|hf_|mrg_|dop_v1_|SG\.)"
    r"[\w.-]{8,}"
    r"|eyJ[\w-]+\.eyJ[\w-]+\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@"
    r"|[?&](?:[\w-]*(?:token|key|secret|password))=[^&\s]{8,}"
)


def secret_name(name: str) -> bool:
    """Whether a variable, header or option of this name holds a secret."""
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word]
    if not words or words[-1] in _ELSEWHERE:
        return False
    return any(word in _WORDS or word.endswith(_ENDINGS) for word in words)


def secret_value(value: str) -> bool:
    """Whether ``value`` has the form of a well-known kind of token, a private key, or a URL with a password."""
    return _SHAPES.search(value) is not None
