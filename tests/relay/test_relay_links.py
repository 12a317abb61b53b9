"""URIs in answers."""

from __future__ import annotations

import pytest

from mooring.relay.links import SCAN_LIMIT, in_content, in_contents

LINK = b'{"type":"resource_link","uri":"x://link"}'
EMBEDDED = b'{"type":"resource","resource":{"uri":"x://in","text":"t"},"x":[1]}'


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (b'{"content":[%b,%b]}' % (LINK, EMBEDDED), ["x://link", "x://in"]),
        (b'{"content":[{"type":"text","text":"\\"resource_link\\""}]}', []),
        (b'{"content":[{"type":"resource"},{"type":"resource_link"}]}', []),
        (b'{"content":"resource_link"}', []),
        (b'{"content":[{"type":"resource","resource":5}]}', []),
        (b'{"content":[%b]}' % (LINK + b" " * SCAN_LIMIT), []),
        (b"{}", []),
    ],
)
def test_links_and_embedded_resources_are_found_in_what_tools_answer(result: bytes, found: list[str]) -> None:
    assert in_content(result) == found


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (b'{"contents":[{"uri":"x://a","text":"t"},{"uri":"x://b"},{"text":""}]}', ["x://a", "x://b"]),
        (b'{"contents":[{"uri":"x://a","text":"t"}]}', []),
        (b'{"contents":[{"uri":5},{"uri":6}]}', []),
        (b'{"contents":[{"uri":"a"},{"uri":"b"}]' + b" " * SCAN_LIMIT + b"}", []),
    ],
)
def test_the_parts_of_a_resource_are_found_where_there_are_several(result: bytes, found: list[str]) -> None:
    assert in_contents(result) == found
