"""Task handles belong to the caller and the workspace they were given in."""

from __future__ import annotations

from typing import Any, cast

from mooring.nouns import Principal
from mooring.relay.handles import Handles

RESULT = b'{"resultType":"task","taskId":"t1"}'


def test_a_handle_of_one_workspace_means_nothing_in_another_even_to_the_same_person() -> None:
    """R19: whoever comes with a token of an identity provider may be in several workspaces under one name."""
    handles = Handles()
    route = cast("Any", object())
    handles.remember(Principal("jwt:ada@company", "a"), RESULT, route)
    assert handles.route(Principal("jwt:ada@company", "a", ("call",)), "t1") is route
    assert handles.route(Principal("jwt:ada@company", "b"), "t1") is None
    assert handles.route(Principal("jwt:bob@company", "a"), "t1") is None
