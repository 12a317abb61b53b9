"""Advertised names against the rules of clients and of model APIs. Each client puts something in front of a name, and
has its own way with what it does not like.

Source: what the clients were seen to send to their models, and the limits in the APIs' references.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mooring.relay.client_names import behind_two_underscores, gemini
from mooring.relay.table import NAME_LIMIT, advertised


class Client(msgspec.Struct):
    """A client in whose configuration Mooring is called ``mooring``."""

    name: str
    shown: Callable[[str], str]
    """What its model is offered for an advertised name."""
    legal: str
    """The whole of what may be offered."""
    kept: int = NAME_LIMIT
    """The longest advertised name that is not cut."""


CLIENTS = (
    Client("Claude Code", behind_two_underscores, r"[a-zA-Z0-9_-]{1,128}"),
    Client("Codex", behind_two_underscores, r"[a-zA-Z0-9_-]{1,128}"),
    Client("Gemini CLI", gemini, r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", kept=51),
    Client("opencode", lambda name: f"mooring_{name}", r"[a-zA-Z0-9_-]{1,128}"),
    Client("Copilot CLI", lambda name: f"mooring-{name}", r"[a-zA-Z0-9_-]{1,128}"),
    Client("your own program", lambda name: name, r"[a-zA-Z0-9_-]{1,64}"),
)
each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
prefixes = st.from_regex(r"[a-z0-9_]{1,20}", fullmatch=True)
names = st.one_of(st.text(min_size=1, max_size=100), st.from_regex(r"[a-z]{30,80}", fullmatch=True))


@each_client
@given(prefix=prefixes, name=names)
def test_what_a_client_makes_of_a_name_is_legal(client: Client, prefix: str, name: str) -> None:
    """A20"""
    assert re.fullmatch(client.legal, client.shown(advertised(prefix, name)))


@each_client
@given(prefix=prefixes, name=names)
def test_names_are_cut_above_a_known_length_only(client: Client, prefix: str, name: str) -> None:
    shown = advertised(prefix, name)
    assert client.shown(shown).endswith(shown) == (len(shown) <= client.kept)


@each_client
@given(prefix=prefixes, one=names, other=names)
def test_shortened_names_stay_apart_where_they_are_cut_again(client: Client, prefix: str, one: str, other: str) -> None:
    """A shortened name ends in its hash, and clients keep the end."""
    long = [f"{'t' * 60}{name}" for name in (one, other)]
    assume(long[0] != long[1])
    first, second = (client.shown(advertised(prefix, name)) for name in long)
    assert first != second
