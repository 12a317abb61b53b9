"""What ``[identity.NAME]`` takes and what it means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mooring.config.plan import Admission, Issuer, Plan
from mooring.errors import ConfigError

Planned = Callable[..., Plan]
URL = "https://login.example.com"
ROOM = "[workspaces.docs]\n[workspaces.docs.keys.people]\nconcurrency = 1\n"
COMPANY = f'{ROOM}[identity.company]\nissuer = "{URL}"\n'
ADMIT = '[[identity.company.admit]]\nworkspace = "docs"\nclaims = {}\n'


def test_without_the_table_nobody_comes_but_by_key(planned: Planned) -> None:
    assert planned("").identity == ()


def test_an_issuer_is_enough_and_lets_nobody_in(planned: Planned) -> None:
    (issuer,) = planned(COMPANY).identity
    assert issuer == Issuer("company", URL)
    assert (issuer.algorithms, issuer.leeway, issuer.admit) == (("RS256", "ES256"), 30.0, ())


def test_the_rest_can_be_chosen(planned: Planned) -> None:
    text = (
        f'{COMPANY}audience = ["api"]\njwks = "http://127.0.0.1:9/keys"\nalgorithms = ["EdDSA"]\nscopes = ["mcp:use"]\n'
        'leeway = "1m"\n[[identity.company.admit]]\nworkspace = "docs"\nscopes = ["list"]\ntools = ["git_*"]\n'
        'key = "people"\nclaims = { groups = ["a", "b*"], sub = "x" }\n'
    )
    admission = Admission("docs", {"groups": ("a", "b*"), "sub": ("x",)}, ("list",), ("git_*",), "people")
    assert planned(text).identity == (
        Issuer("company", URL, ("api",), "http://127.0.0.1:9/keys", ("EdDSA",), ("mcp:use",), 60.0, (admission,)),
    )


def test_everybody_is_said_expressly(planned: Planned) -> None:
    assert planned(COMPANY + ADMIT).identity[0].admit == (Admission("docs"),)


def test_the_workspaces_of_agents_and_the_default_one_can_be_named(planned: Planned) -> None:
    admit = '[[identity.c.admit]]\nworkspace = "{}"\nclaims = {{}}\n'
    issuer = f'[identity.c]\nissuer = "{URL}"\n'
    assert planned(issuer + admit.format("default")).identity[0].admit[0].workspace == "default"
    agent = '[agents.w]\ntype = "codex"\n'
    assert planned(issuer + agent + admit.format("agent/w")).identity[0].admit[0].workspace == "agent/w"


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("[identity.company]\n", "identity.company", "issuer"),
        ('[identity."a@b"]\nissuer = "x"\n', 'identity."a@b"', "cannot be a name"),
        ('[identity.c]\nissuer = "http://login.example.com"\n', "identity.c.issuer", "https://"),
        ('[identity.c]\nissuer = "login.example.com"\n', "identity.c.issuer", "not a URL"),
        ('[identity.c]\nissuer = "https://[x"\n', "identity.c.issuer", "not a URL"),
        ('[identity.c]\nissuer = "https://me:pw@login.example.com"\n', "identity.c.issuer", "no user"),
        (COMPANY + 'jwks = "file:///etc/keys"\n', "identity.company.jwks", "not a URL"),
        (COMPANY + 'algorithms = ["HS256"]\n', "identity.company.algorithms[0]", '"RS256"'),
        (COMPANY + 'algorithms = ["none"]\n', "identity.company.algorithms[0]", '"RS256"'),
        (COMPANY + "algorithms = []\n", "identity.company.algorithms", "length"),
        (COMPANY + 'leeway = "6m"\n', "identity.company", "at most 5 minutes"),
        (COMPANY + "scopes = ['a b']\n", "identity.company.scopes[0]", "matching"),
        (COMPANY + "secret = 1\n", "identity.company.secret", "unknown key"),
        (COMPANY + f'[identity.again]\nissuer = "{URL}"\n', "identity.again.issuer", '"company" is this issuer'),
        (COMPANY + ADMIT.replace('"docs"', '"dosc"'), "identity.company.admit[0].workspace", 'did you mean "docs"'),
        (COMPANY + ADMIT.replace("claims = {}\n", ""), "identity.company.admit[0]", "claims"),
        (COMPANY + ADMIT.replace("{}", "{ groups = [] }"), "identity.company.admit[0].claims.groups", "never met"),
        (COMPANY + ADMIT + "scopes = []\n", "identity.company.admit[0].scopes", "length"),
        (COMPANY + ADMIT + 'scopes = ["all"]\n', "identity.company.admit[0].scopes[0]", '"call", "list"'),
        (COMPANY + ADMIT + 'key = "peeple"\n', "identity.company.admit[0].key", 'did you mean "people"'),
    ],
)
def test_what_is_wrong_is_said_with_its_place(planned: Planned, text: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        planned(text)
    assert raised.value.details["path"] == path
    assert said in raised.value.message
