"""The HTTP side of the daemon: the data endpoint, ``/healthz`` and ``/metrics`` on every configured address."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mooring.config.plan import Gateway, Plan
from mooring.errors import MooringError
from mooring.nouns import Principal
from mooring.observe.sinks import CONTENT_TYPE, Now
from mooring.tasks import Tasks
from mooring.wire import jsonrpc
from mooring.wire.headers import Hosts
from mooring.wire.http import HttpServer
from mooring.wire.http_front import McpFront
from mooring.wire.http_messages import JSON, Reply, Request
from mooring.wire.http_session import HttpSession

if TYPE_CHECKING:
    from mooring.serve.app import App
    from mooring.serve.outside import Outside

_TEXT = f"Content-Type: {CONTENT_TYPE}\r\n".encode()


@asynccontextmanager
async def fronts(app: App, listen: tuple[tuple[str, int], ...] | None = None) -> AsyncGenerator[None, None]:
    """Listen as long as the block lasts, on ``listen`` or where the configuration says. Raises MooringError when an
    address cannot be had."""

    async def healthz(request: Request) -> Reply:
        return Reply(200, jsonrpc.text({"status": "ok", "config_error": app.config_error or None}), JSON)

    async def metrics(request: Request) -> Reply:
        return Reply(200, _measured(app).encode(), _TEXT)

    gateway = app.plan.gateway
    pages = {"/healthz": healthz, "/metrics": metrics}
    addresses = gateway.listen if listen is None else listen
    front = McpFront(app.relay, app.login, hosts=_hosts(gateway, addresses), pages=pages)
    async with Tasks() as tasks, HttpServer(front, admit=front.admit) as server, front:
        bound = [await _listen(server, host, port) for host, port in addresses]
        app.endpoint = f"http://{_authority(*bound[0])}/mcp"

        def revoked(key_id: str) -> None:
            _end(front, key_id)

        outside: Outside | None = None

        def applied(plan: Plan) -> None:
            nonlocal outside
            front.hosts = _hosts(plan.gateway, bound)
            app.public_url = _told(plan.gateway, app.endpoint)
            if outside is None and plan.identity:
                from mooring.serve.outside import Outside  # only where others say who somebody is

                outside = Outside(app, front, tasks)
            if outside is not None:
                outside.apply(plan.identity)
            front.end_sessions(lambda session: not _open(session.principal, plan))

        applied(app.plan)
        app.on_applied.append(applied)
        app.keys.on_revoked.append(revoked)
        try:
            yield
        finally:  # agents of a library may listen again
            app.on_applied.remove(applied)
            app.keys.on_revoked.remove(revoked)
            app.endpoint = app.public_url = ""
            app.login.identity = None


def _measured(app: App) -> str:
    audit = app.audit
    lost, unwritten = (audit.lost, audit.waiting) if audit else (0, 0)
    return app.metrics.render(Now(tuple(app.pool.rows()), app.pool.waiting, len(app.parked), lost, unwritten))


def _open(principal: Principal, plan: Plan) -> bool:
    """Whether what a session came by is still there: its workspace, and at the endpoint of a variant that variant."""
    workspace = plan.workspaces.get(principal.workspace)
    if workspace is None or not principal.bare:
        return workspace is not None
    return any(mount.variant == principal.variant for mount in workspace.mounts)


def _told(gateway: Gateway, endpoint: str) -> str:
    """The endpoint for others. Port 0 is any free one, so that a public URL made of it says nothing."""
    return endpoint if gateway.public_url.endswith(":0") else f"{gateway.public_url}/mcp"


def _end(front: McpFront, key_id: str) -> None:
    def of_key(session: HttpSession) -> bool:
        return session.principal.key_id == key_id

    front.end_sessions(of_key)


def _hosts(gateway: Gateway, listen: tuple[tuple[str, int], ...] | list[tuple[str, int]]) -> Hosts:
    return Hosts(listen, gateway.allowed_hosts, gateway.public_url)


async def _listen(server: HttpServer, host: str, port: int) -> tuple[str, int]:
    try:
        return await server.listen(host, port)
    except OSError as error:
        raise MooringError(
            f"Cannot listen on {host}:{port}: {error.strerror or error}. Is another program using it?"
            " Change gateway.listen in the configuration.",
            address=f"{host}:{port}",
        ) from None


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
