"""What a token says, and where it leads. The property: who is let in is exactly whom an admission covers."""

from __future__ import annotations

import base64
import json
from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.access.claims import Said, audiences, covers, key_id, lacking, peek, principals, subject, values
from mooring.config.plan import Admission, Issuer
from mooring.nouns import Principal

BASE = "https://mooring.example"
WHO = "jwt:alice@company"


def issuer(*admit: Admission, **more: Any) -> Issuer:
    return Issuer("company", "https://login.example", admit=admit, **more)


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def test_a_token_says_how_to_check_it() -> None:
    token = f"{part({'alg': 'ES256', 'kid': 'k', 'typ': 'JWT'})}.{part({'iss': 'i', 'sub': 's'})}.c2ln"
    assert peek(token) == Said("ES256", "k", "i")
    assert peek(f"{part({'alg': 'none'})}.{part({})}.c2ln") == Said("none", None, "")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "mrg_abc",
        "a.b",
        "a.b.c",
        f"{part({})}.{part({})}.",
        f"{part([])}.{part({})}.c2ln",
        f"{part({'alg': 5})}.{part({})}.c2ln",
        f"{part({'kid': ['k']})}.{part({})}.c2ln",
        f"{part({})}.{part({'iss': {}})}.c2ln",
        f"{part({})}.{part({})}.a.b.c",
        f"{part({})}.{'Ww' * 100_000}.c2ln",
    ],
)
def test_what_is_no_signed_token_says_nothing(token: str) -> None:
    assert peek(token) is None


@given(st.text(max_size=60))
def test_nothing_that_is_sent_breaks_the_first_look(token: str) -> None:
    assert peek(token) is None or token.count(".") == 2


@pytest.mark.parametrize(
    ("claims", "claim", "found"),
    [
        ({"a": "x y"}, "a", ("x y",)),
        ({"scope": "x y"}, "scope", ("x", "y")),
        ({"scp": "x y"}, "scp", ("x", "y")),
        ({"scp": ["x y"]}, "scp", ("x y",)),
        ({"a": ["x", 5, True, None, {}, 1.5]}, "a", ("x", "5", "true")),
        ({"a": False}, "a", ("false",)),
        ({"a": {"b": {"c": "x"}}}, "a.b.c", ("x",)),
        ({"a.b": "x", "a": {"b": "y"}}, "a.b", ("x",)),
        ({"a": ["x"]}, "a.b", ()),
        ({"a": {"b": "x"}}, "a", ()),
        ({}, "a", ()),
    ],
)
def test_the_values_of_a_claim(claims: dict[str, Any], claim: str, found: tuple[str, ...]) -> None:
    assert values(claims, claim) == found


@pytest.mark.parametrize("sub", [None, 5, "", "a" * 256, "a\nb", "\u202ea"])
def test_a_subject_that_cannot_be_shown_is_none(sub: object) -> None:
    assert subject({"sub": sub}) == ""


def test_all_claims_count_and_one_glob_of_each() -> None:
    admission = Admission("a", {"groups": ("docs*", "ops"), "email_verified": ("true",)})
    assert covers(admission, {"groups": ["x", "ops"], "email_verified": True})
    assert not covers(admission, {"groups": ["x", "ops"], "email_verified": False})
    assert not covers(admission, {"groups": ["x"], "email_verified": True})
    assert covers(Admission("a"), {}), "without claims everybody"


def test_the_first_admission_of_each_workspace_counts_in_the_order_of_the_configuration() -> None:
    company = issuer(
        Admission("b", {"groups": ("ops",)}, ("list",), ("t*",), "people"),
        Admission("a", {"sub": ("alice",)}),
        Admission("b"),
        audience=("api",),
    )
    found = principals({"sub": "alice", "groups": "ops"}, company, BASE)
    assert list(found.values()) == [Principal(WHO, "b", ("list",), None, ("t*",), "people"), Principal(WHO, "a")]
    assert list(principals({"sub": "alice"}, company, BASE)) == ["a", "b"]


@pytest.mark.parametrize(
    ("aud", "workspaces"),
    [
        (BASE, ["a", "b"]),
        (f"{BASE}/", ["a", "b"]),
        (f"{BASE}/mcp", ["a", "b"]),
        ([f"{BASE}/w/b/mcp", "else"], ["b"]),
        (f"{BASE}/w/c/mcp", []),
        ("https://mooring.example.evil", []),
        (None, []),
    ],
)
def test_a_token_for_the_endpoint_of_a_workspace_is_for_no_other(aud: object, workspaces: list[str]) -> None:
    company = issuer(Admission("a"), Admission("b"))
    assert list(principals({"sub": "alice", "aud": aud}, company, BASE)) == workspaces
    assert f"{BASE}/w/b/mcp" in audiences(company, BASE)
    assert audiences(issuer(Admission("a"), audience=("api",)), BASE) == ("api",)


def test_a_scope_that_every_token_needs_is_missed() -> None:
    company = issuer(scopes=("mcp", "more"))
    assert lacking({"scope": "more x"}, company) == ("mcp",)
    assert lacking({"scp": ["mcp", "more"]}, company) == ()
    assert lacking({}, issuer()) == ()


def test_no_subject_can_pass_for_a_caller_of_another_kind() -> None:
    """What stands for keys, the local user and strangers begins otherwise, and an issuer's name has no "@"."""
    for sub in ("k_gz733rly", "local:a", "anonymous:a", "alice@other"):
        assert key_id(sub, "company").startswith("jwt:")
        assert key_id(sub, "company").rpartition("@")[2] == "company"


words = st.sampled_from(["docs", "docs-eu", "ops", "dev", "*", "d?cs"])
globs = st.sampled_from(["docs", "docs*", "o?s", "*", "[d]ev"])
admissions = st.lists(
    st.builds(
        Admission,
        st.sampled_from(["a", "b", "c"]),
        st.dictionaries(
            st.sampled_from(["groups", "team", "realm.roles"]), st.lists(globs, min_size=1).map(tuple), max_size=2
        ),
        st.sampled_from([("call", "list"), ("list",), ("call",)]),
    )
)
said = st.fixed_dictionaries(
    {"sub": st.just("alice")},
    optional={
        "groups": st.lists(words) | words,
        "team": words,
        "realm": st.fixed_dictionaries({"roles": st.lists(words)}),
    },
)


def plain(claims: dict[str, Any], claim: str) -> list[str]:
    """The model: what ``values`` is, said in another way."""
    found = claims.get("realm", {}).get("roles", []) if claim == "realm.roles" else claims.get(claim, [])
    return [found] if isinstance(found, str) else found


@given(said, admissions)
def test_who_is_let_in_is_whom_an_admission_covers(claims: dict[str, Any], admit: list[Admission]) -> None:
    found = principals(claims, issuer(*admit, audience=("api",)), BASE)
    fit = [
        each
        for each in admit
        if all(
            any(fnmatchcase(value, glob) for glob in patterns for value in plain(claims, claim))
            for claim, patterns in each.claims.items()
        )
    ]
    assert list(found) == list(dict.fromkeys(each.workspace for each in fit))
    for workspace, principal in found.items():
        first = next(each for each in fit if each.workspace == workspace)
        assert principal == Principal(WHO, workspace, first.scopes)
