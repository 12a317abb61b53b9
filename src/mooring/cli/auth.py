"""``mooring auth login | status | logout``: logins at remote servers with ``auth = "oauth"``.

Works on this machine's files, with or without a daemon. A running one is told, and would find out by itself: it looks
for a newer token whenever one is refused. Tokens are never printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import click
import msgspec

from mooring.cli import masking
from mooring.cli.attached import attached
from mooring.cli.configured import loaded, planned
from mooring.cli.output import json_option, print_json, print_table, say, until, warn
from mooring.cli.shapes import LoginRow
from mooring.config.home import Home
from mooring.config.logins import LoginPlace
from mooring.config.names import did_you_mean
from mooring.config.plan import Plan, Variant
from mooring.config.plan_servers import CLIENT_SECRET, Remote
from mooring.config.secrets import Secrets
from mooring.errors import ConfigError, DaemonAbsent, MooringError, TimedOut
from mooring.facade import Mooring
from mooring.wire.login import Login, decoded, encoded, stale

PATIENCE = 300.0
"""Seconds for the person at the browser."""


class Site(msgspec.Struct, frozen=True):
    """One server that one logs in at."""

    variant: Variant
    launch: Remote
    place: LoginPlace

    def login(self) -> Login:
        """What is known about its login. Raises ConfigError."""
        return decoded(self.place.read(), self.launch.url)

    def known(self) -> Login:
        """The same for what replaces it: one that cannot be read is warned of and counts as none."""
        try:
            return self.login()
        except ConfigError as error:
            warn(str(error))
            return Login(self.launch.url)


@click.group()
def auth() -> None:
    """Log in at remote servers that have auth = "oauth"."""


@auth.command()
@click.argument("server")
@json_option
def login(server: str, as_json: bool) -> None:
    """Log in at SERVER with the browser.

    The address to open is printed. Where the browser runs on another machine, paste the address that it ends up at
    (http://localhost:...) here.
    """
    site = _site(server)
    made = asyncio.run(_log_in(site))
    site.place.put(encoded(made))
    _tell(lambda mooring: mooring.retry(site.variant.server))
    row = _row(site, made)
    if as_json:
        print_json(row)
    else:
        say(f"Logged in at {row.issuer}{', scopes: ' + ' '.join(row.scopes) if row.scopes else ''}.")


@auth.command()
@click.argument("server", required=False)
@json_option
def status(server: str | None, as_json: bool) -> None:
    """Who is logged in where, and for how long."""
    sites = [_site(server)] if server else _sites(planned(loaded()))
    rows = [_row(site, site.login()) for site in sites]
    if as_json:
        print_json(rows)
        return
    columns = ("SERVER", "STATE", "ISSUER", "SCOPES", "TOKEN ENDS", "RENEWABLE")
    cells = (
        (
            row.variant,
            row.state,
            row.issuer,
            " ".join(row.scopes),
            until(row.expires_at),
            "yes" if row.renewable else "",
        )
        for row in rows
    )
    print_table(columns, cells, 'No server has auth = "oauth".')


@auth.command()
@click.argument("server")
def logout(server: str) -> None:
    """Give up the login at SERVER.

    Its tokens are revoked where the authorization server offers that, and forgotten here in any case.
    """
    site = _site(server)
    known = site.known()
    revoked = asyncio.run(_revoked(site, known)) if known.access_token or known.refresh_token else False
    site.place.put(None)
    _tell(lambda mooring: mooring.restart(site.variant.server))
    say(f"Logged out of {server}." if revoked or not known.access_token else f"Forgot the login at {server}.")


async def _log_in(site: Site) -> Login:
    from mooring.cli.browser import Browser  # with the SDK, which takes half a second
    from mooring.launch.remote import filled
    from mooring.wire.oauth import log_in
    from mooring.wire.oauth_redirect import listening

    secrets, launch = _secrets().fetch_all(site.launch), site.launch
    known = site.known()
    async with AsyncExitStack() as stack:
        try:
            redirects = await stack.enter_async_context(listening(launch.oauth.redirect_port or known.port))
        except OSError as error:
            if launch.oauth.redirect_port:
                raise ConfigError(f"oauth.redirect_port {launch.oauth.redirect_port}: {error.strerror}") from None
            redirects = await stack.enter_async_context(listening(0))
        headers = filled(launch, secrets)
        secret = secrets.get(CLIENT_SECRET, "")
        try:
            async with asyncio.timeout(PATIENCE):
                return await log_in(
                    site.variant.server, known, launch.oauth, secret, headers, Browser(redirects, PATIENCE)
                )
        except TimeoutError:
            raise TimedOut(f"Nobody logged in within {PATIENCE / 60:g} minutes.") from None


async def _revoked(site: Site, known: Login) -> bool:
    from mooring.wire.token_endpoint import revoke

    try:
        secret = _secrets().fetch_all(site.launch).get(CLIENT_SECRET, "")
        return await revoke(site.variant.server, known, secret)
    except MooringError as error:
        warn(f"the tokens were not revoked: {error}")
        return False


def _tell(what: Callable[[Mooring], Awaitable[object]]) -> None:
    """A running daemon takes it up now."""
    try:
        attached(what, spawn=False)
    except DaemonAbsent:
        return
    except MooringError as error:
        if error.kind != ConfigError.kind:  # else it does not have this server
            warn(f"it is done, but the running daemon was not told: {error}")


def _secrets() -> Secrets:
    return Secrets(Home.locate())


def _sites(plan: Plan) -> list[Site]:
    secrets = _secrets()
    return [
        Site(variant, variant.launch, secrets.login(variant.id))
        for variant in plan.variants.values()
        if isinstance(variant.launch, Remote) and variant.launch.auth == "oauth"
    ]


def _site(named: str) -> Site:
    """The one that is meant: a variant's id, or a server that has one variant. Raises ConfigError."""
    written = loaded()
    sites = _sites(planned(written))
    if named in written.config.mcp_servers and all(site.variant.server != named for site in sites):
        from mooring.cli.trial import alone  # no workspace has it

        sites = _sites(planned(msgspec.structs.replace(written, config=alone(written.config, named, None))))
    exact = [site for site in sites if site.variant.id == named]
    found = exact or [site for site in sites if site.variant.server == named]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(site.variant.id for site in found)
        raise ConfigError(f'"{named}" has different kwargs in different workspaces; name one of: {ids}')
    if named in written.config.mcp_servers:
        raise written.error('one does not log in there: it needs url and auth = "oauth"', ("mcp_servers", named))
    raise ConfigError(f'there is no server "{named}"{did_you_mean(named, written.config.mcp_servers)}')


def _row(site: Site, login: Login) -> LoginRow:
    state = "logged in" if login.access_token else "expired" if login.client else "logged out"
    renewable = bool(login.refresh_token)
    if state == "logged in" and stale(login, time.time()) and not renewable:
        state = "expired"
    elif state == "logged in" and login.challenge is not None:
        state = "insufficient" if login.challenge.status == 403 else "expired"
    return LoginRow(
        server=site.variant.server,
        variant=site.variant.id,
        url=masking.argv((site.launch.url,))[0],
        state=state,
        issuer=login.issuer,
        client_id=login.client.id if login.client else "",
        scopes=tuple(login.scope.split()),
        expires_at=login.expires_at,
        renewable=renewable,
    )
