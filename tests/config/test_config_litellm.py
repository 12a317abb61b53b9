"""What ``[litellm]`` takes and what it means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mooring.config.plan import LiteLLM, Plan
from mooring.config.plan_servers import SecretRef
from mooring.errors import ConfigError

Planned = Callable[..., Plan]
KEY = 'master_key = { env = "KEY" }\n'
WHOLE = f'[litellm]\nurl = "http://litellm:4000/"\n{KEY}'


def test_without_the_table_there_is_no_litellm(planned: Planned) -> None:
    assert planned("").litellm is None


def test_url_and_key_are_enough(planned: Planned) -> None:
    """R22: the key is a reference; the plan never has its value."""
    litellm = planned(WHOLE).litellm
    assert litellm == LiteLLM("http://litellm:4000", "http://litellm:4000", SecretRef("env", "KEY"))
    assert (litellm.via, litellm.interval, litellm.alias_prefix) == ("mooring", 600.0, "")


def test_the_rest_can_be_chosen(planned: Planned) -> None:
    more = 'public_url = "https://tools.example/"\nvia = "upstream"\ninterval = "1m"\nalias_prefix = "acme_"\n'
    litellm = planned(WHOLE + more).litellm
    assert litellm is not None
    assert (litellm.url, litellm.public_url) == ("http://litellm:4000", "https://tools.example")
    assert (litellm.via, litellm.interval, litellm.alias_prefix) == ("upstream", 60.0, "acme_")


def test_a_missing_key_is_reported_and_stops_nothing(planned: Planned) -> None:
    plan = planned(WHOLE, fingerprint=lambda _: None)
    assert plan.litellm is not None
    (problem,) = plan.problems
    assert (problem.level, problem.path, problem.line) == ("error", "litellm.master_key", 3)
    assert "<env KEY> is missing" in problem.message


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ('[litellm]\nurl = "http://a"\n', "litellm", "master_key"),
        (f'[litellm]\nurl = "a:4000"\n{KEY}', "litellm", "http://"),
        (WHOLE + 'public_url = "a:4000"\n', "litellm", "public_url needs to begin with http://"),
        (WHOLE + "interval = 0.1\n", "litellm", "a second at least"),
        (WHOLE + 'via = "both"\n', "litellm.via", '"mooring", "upstream"'),
        (WHOLE + 'alias_prefix = "a-"\n', "litellm.alias_prefix", "A-Z"),
        (WHOLE.replace('{ env = "KEY" }', '"sk-1"'), "litellm.master_key", "table"),
        (WHOLE + "team = 1\n", "litellm.team", "unknown key"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(planned: Planned, text: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        planned(text)
    assert raised.value.details["path"] == path
    assert said in raised.value.message
