"""A keyring in memory; the real ones need a desktop."""

from __future__ import annotations


class MemoryKeyring:
    """A keyring as the library's backends are."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, user: str) -> str | None:
        return self.kept.get((service, user))

    def set_password(self, service: str, user: str, value: str) -> None:
        self.kept[service, user] = value

    def delete_password(self, service: str, user: str) -> None:
        del self.kept[service, user]
