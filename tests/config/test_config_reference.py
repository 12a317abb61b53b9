"""The page about the configuration."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mooring.config import reference, schema, schema_agents, schema_servers

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == reference.page(), f"run: python -m mooring.config.reference {PAGE}"


def test_the_page_has_every_key() -> None:
    page = reference.page()
    for struct in (
        schema.Gateway,
        *schema_servers.SERVER_KINDS.values(),
        schema_servers.Secret,
        schema.Workspace,
        schema_agents.Agent,
        schema.LiteLLM,
    ):
        for name in struct.__struct_encode_fields__:
            assert f"| `{name}` |" in page


def test_the_page_can_be_written_to_a_file_or_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference"])
    reference.main()
    monkeypatch.setattr(sys, "argv", ["reference", str(tmp_path / "page.md")])
    reference.main()
    assert capsys.readouterr().out == (tmp_path / "page.md").read_text() == reference.page()
