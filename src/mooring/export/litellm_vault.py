"""The secrets that join Mooring and LiteLLM, kept in the secret store. Called by ``export.litellm`` only.

Two kinds: keys of Mooring's, with which LiteLLM calls a variant, and keys of LiteLLM's, with which agents call LiteLLM.
Values go to LiteLLM and to whoever asks for a workspace's environment, and nowhere else.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable
from typing import Protocol

from mooring.config.names import plain_fault
from mooring.config.plan_servers import SecretRef
from mooring.errors import Unauthenticated
from mooring.export.litellm_wanted import Registration
from mooring.launch.aside import aside
from mooring.nouns import KeyRow, NewKey, Principal


class Secrets(Protocol):
    """The part of ``config.secrets`` that is needed here; all of it blocks."""

    def fetch(self, ref: SecretRef) -> str: ...
    def installation_key(self) -> bytes: ...
    def store_names(self) -> list[str]: ...
    def store_set(self, name: str, value: str) -> None: ...
    def store_remove(self, name: str) -> bool: ...


class Doors(Protocol):
    """The part of ``access.keys`` that is needed here."""

    def principal(self, token: str) -> Principal: ...
    def rows(self, workspace: str | None = None) -> list[KeyRow]: ...
    async def create(
        self, workspace: str, name: str = "", *, variant: str | None = None, replace: bool = False
    ) -> NewKey: ...
    async def revoke(self, key_id: str) -> None: ...


def door(variant: str) -> str:
    """The name of the Mooring key with which LiteLLM calls a variant."""
    return f"litellm-{variant}"


class Vault:
    """Reads and makes them. Its methods raise ConfigError when a secret may not be read, StoreError."""

    def __init__(self, secrets: Secrets, doors: Doors) -> None:
        self._secrets = secrets
        self._doors = doors

    async def installation(self) -> str:
        """A name of this installation that says nothing about it."""
        return (await self.fingerprint("litellm"))[:10]

    async def fingerprint(self, value: str) -> str:
        """Tells values apart and means nothing elsewhere."""
        key = await asyncio.to_thread(self._secrets.installation_key)
        return hmac.new(key, value.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()

    async def fetch(self, ref: SecretRef) -> str:
        """A secret that the configuration refers to. Raises ConfigError when it is missing."""
        return await aside(lambda: self._secrets.fetch(ref), (self._secrets, ref))

    async def credentials(self, found: Iterable[Registration], *, make: bool) -> dict[str, str]:
        """What LiteLLM sends to each variant. Without ``make`` nothing is made, and what is missing is left out."""
        sent: dict[str, str] = {}
        for each in found:
            if each.secret is not None:
                sent[each.variant] = await self.fetch(each.secret)
            elif not each.direct and (token := await self._token(each, make)):
                sent[each.variant] = token
        return sent

    async def keys(self, workspaces: Iterable[str]) -> dict[str, str]:
        """The LiteLLM keys that are known, by workspace."""
        known = await asyncio.to_thread(self._secrets.store_names)
        named = {workspace: _name("key", workspace) for workspace in workspaces}
        return {
            workspace: await self.fetch(SecretRef("store", name)) for workspace, name in named.items() if name in known
        }

    async def new_key(self, workspace: str) -> str:
        """A new LiteLLM key for a workspace. It is kept before anybody else has it: a sync that breaks off afterwards
        leaves no key that nobody knows."""
        value = "sk-mooring-" + urlsafe_b64encode(os.urandom(24)).decode()
        return await self._keep(_name("key", workspace), value)

    async def forget(self, variants: Collection[str], workspaces: Collection[str]) -> None:
        """End and drop what belongs to variants and workspaces that LiteLLM has no more."""
        doors = {door(variant) for variant in variants}
        for row in self._doors.rows():
            if row.name in doors and not row.revoked:
                await self._doors.revoke(row.id)
        for name in (*(_name("server", each) for each in variants), *(_name("key", each) for each in workspaces)):
            await asyncio.to_thread(self._secrets.store_remove, name)

    async def _token(self, each: Registration, make: bool) -> str:
        """The Mooring key of a variant; a new one when there is none that opens it; "" when none may be made."""
        name = _name("server", each.variant)
        if name in await asyncio.to_thread(self._secrets.store_names):
            token = await self.fetch(SecretRef("store", name))
            if self._opens(token, each):
                return token
        if not make:
            return ""
        made = await self._doors.create(each.workspaces[0], door(each.variant), variant=each.variant, replace=True)
        return await self._keep(name, made.key)

    def _opens(self, token: str, each: Registration) -> bool:
        try:
            holder = self._doors.principal(token)
        except Unauthenticated:
            return False
        return (holder.workspace, holder.variant) == (each.workspaces[0], each.variant)

    async def _keep(self, name: str, value: str) -> str:
        await asyncio.to_thread(self._secrets.store_set, name, value)
        return await self.fetch(SecretRef("store", name))  # as everywhere, so that logs are redacted of it


def _name(kind: str, of: str) -> str:
    """Under which a value is kept; names of agents' workspaces have characters that the store does not take."""
    name = f"litellm.{kind}.{of}"
    return name if not plain_fault(name) else f"litellm.{kind}.{hashlib.sha256(of.encode()).hexdigest()}"
