"""No secret value survives redaction, whatever form it takes; other text does."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mooring.observe import redact
from mooring.observe.redact import MASK, MIN_LENGTH, Redactor


def redactor(*values: str) -> Redactor:
    made = Redactor()
    for value in values:
        made.add(value)
    return made


def test_r22_a_registered_value_is_masked_wherever_it_stands() -> None:
    """R22: values never appear in logs; also A6: masked if the child echoes them."""
    assert redactor("hunter22")("hunter22 is hunter22hunter22, not hunter2") == f"{MASK} is {MASK}, not hunter2"


def test_the_beginning_of_a_value_at_the_end_of_a_line_is_masked() -> None:
    """R22 A6: long lines are cut before they come here, and a line may be half written."""
    value = "sk-" + "0123456789" * 500
    masked = redactor(value, 'pa"ss\nwörd-and-more')
    for shown in (20, 8, 4096):
        assert masked(f"got {value[:shown]}\nnext {value[:shown]}") == f"got {MASK}\nnext {MASK}"
    assert masked(f"got {value[:7]}\n") == f"got {value[:7]}\n"
    assert masked(f"got {value[:20]} and more") == f"got {value[:20]} and more"
    assert masked(f"said {json.dumps(chr(10).join(['pa' + chr(34) + 'ss', 'wörd-and-more']))[1:16]}") == f"said {MASK}"
    assert masked(f"cut in a character: {value[:50]}\ufffd\nnext") == f"cut in a character: {MASK}\ufffd\nnext"


@given(st.text("ab", min_size=8, max_size=60), st.text("ab", max_size=60), st.data())
def test_no_beginning_of_eight_survives_at_the_end_of_a_line(value: str, before: str, data: st.DataObject) -> None:
    """A6"""
    length = data.draw(st.integers(8, len(value)))
    assert not redactor(value)(before + value[:length]).endswith(value[:length])


def test_where_a_value_is_known_to_be_near_none_is_too_short() -> None:
    """A6: what a server says about the credentials it has just been given."""
    masked = Redactor(shortest=1)
    for value in ("7", "on", ""):
        masked.add(value)
    assert masked("7 is on, off is not") == f"{MASK} is {MASK}, off is not"


def test_text_without_secrets_is_unchanged() -> None:
    text = "Basic usage: bear with me; nothing secret, mrg_ is a prefix.\n"
    assert redactor("hunter22")(text) == text
    assert Redactor()(text) == text


def test_the_longer_of_two_values_is_masked_whole() -> None:
    assert redactor("secret", "secret-and-more")("a secret-and-more b") == f"a {MASK} b"


def test_of_overlapping_values_no_tail_is_left() -> None:
    assert redactor("abcdef", "defghi")("xabcdefghix") == f"x{MASK}x"


@pytest.mark.parametrize("value", ["", "1", "on", "yes"])
def test_values_too_short_to_be_secrets_are_left_alone(value: str) -> None:
    assert len(value) < MIN_LENGTH
    assert redactor(value)("1 on yes") == "1 on yes"


@pytest.mark.parametrize("value", ['pa"ss\\wörd\n', "tab\tin it", "a b/c?d=é&e", "emoji🔑key"])
def test_a_value_is_found_escaped_in_json_and_in_urls(value: str) -> None:
    masked = redactor(value)
    for form in (json.dumps(value), json.dumps(value, ensure_ascii=False), f'"{quote(value, safe="")}"', f'"{value}"'):
        assert masked(f"said {form}.") == f'said "{MASK}".'


def test_every_line_of_a_value_is_masked_by_itself() -> None:
    masked = redactor("-----BEGIN KEY-----\nMIIEvQIBADANBg\r\n  kqhkiG9w0BAQ\n")
    assert masked("first MIIEvQIBADANBg\nthen kqhkiG9w0BAQ") == f"first {MASK}\nthen {MASK}"


def test_a_value_that_was_read_with_a_line_end_is_found_without_it() -> None:
    assert redactor("hunter22\n")("got hunter22!") == f"got {MASK}!"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {MASK}"),
        ("authorization: bearer   x", f"authorization: bearer {MASK}"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", f"Authorization: Basic {MASK}"),
        ("key mrg_" + "aB3-_" * 8 + ".", f"key mrg_{MASK}."),
    ],
)
def test_credentials_are_masked_without_being_registered(text: str, shown: str) -> None:
    assert Redactor()(text) == shown


def test_rotated_values_stay_known_up_to_a_limit_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "MAX_FORMS", 3)
    masked = redactor("value-1", "value-2", "value-3", "value-1", "value-4")
    assert masked("value-1 value-2 value-3 value-4") == f"{MASK} value-2 {MASK} {MASK}"


PIECES = st.text(st.characters(exclude_characters="*", exclude_categories=("Cs",)), min_size=MIN_LENGTH, max_size=12)


@given(st.lists(PIECES, min_size=1, max_size=5), st.data())
def test_no_registered_value_is_ever_left(values: list[str], data: st.DataObject) -> None:
    parts = data.draw(st.lists(st.sampled_from(values) | st.text(max_size=5)))
    masked = redactor(*values)("".join(parts))
    assert not [value for value in values if value in masked]


@given(PIECES, st.text(max_size=20), st.text(max_size=20))
def test_what_surrounds_a_value_stays(value: str, before: str, after: str) -> None:
    assume(len(value.splitlines()) == 1)  # each line would be a value of its own
    value = "\ue000" + value.replace("\ue000", "x") + "\ue001"  # cannot occur in, or overlap with, what surrounds it
    before, after = (text.replace("\ue000", "").replace("\ue001", "") for text in (before, after))
    plain = Redactor()
    masked = redactor(value)(f"{before}{value}{after}")
    assert masked == plain(f"{before}{MASK}{after}")


@contextmanager
def switching_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def test_a_value_that_is_fetched_again_meanwhile_stays_masked() -> None:
    """A6: at each start in a thread of its own, while the log and the audit are written."""
    masked = redactor("hunter22")
    fetching = threading.Thread(target=lambda: [masked.add("hunter22") for _ in range(30_000)])
    with switching_often():
        fetching.start()
        seen = {masked("it is hunter22") for _ in iter(fetching.is_alive, False)}
        fetching.join()
    assert seen <= {f"it is {MASK}"}


def test_values_that_are_fetched_at_the_same_time_are_all_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A6"""
    monkeypatch.setattr(redact, "MAX_FORMS", 100)
    masked = Redactor()
    failures: list[BaseException] = []

    def fetch(name: str) -> None:
        try:
            for number in range(4_000):
                masked.add(f"{name}-{number}-secret")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fetch, args=(name,)) for name in "abcd"]
    with switching_often():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    masked.add("last-secret")
    assert masked("last-secret") == MASK
