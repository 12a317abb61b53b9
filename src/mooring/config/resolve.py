"""From what is written to what should be: the plan. Pure: no I/O, no clock; fingerprints are handed in.

Called at boot, at reload and by ``check``. Decides which variants exist, who mounts them under which prefix, and what
is wrong with them; a server that cannot run is in the plan with the reason, so that it never hides another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from mooring.config import kwargs as kw
from mooring.config import launches, names, plan, plan_servers, policies
from mooring.config.fault import Fault
from mooring.config.listen import beyond_loopback, parse_address, public_url
from mooring.config.plan import Mount, Plan, ToolRules, Variant
from mooring.config.plan_servers import (
    AUTHORIZATION,
    CLIENT_SECRET,
    Container,
    Launch,
    Process,
    Remote,
    SecretRef,
    references,
)
from mooring.config.references import expand
from mooring.config.schema import Gateway, Loaded, Workspace
from mooring.config.schema_agents import Grant
from mooring.config.schema_base import Kwarg, Path, dotted
from mooring.config.schema_catalog import CatalogSource
from mooring.config.schema_servers import AnyServer, Timeouts, Tools
from mooring.errors import ConfigError
from mooring.nouns import Problem, Sharing

DEFAULT_WORKSPACE = "default"
"""The workspace of those who define none; it has every server, and the registry."""
_NARROWNESS: tuple[Sharing, ...] = ("shared", "workspace", "session")


def resolve(
    loaded: Loaded, *, fingerprint: Callable[[SecretRef], str | None], unsupported: Callable[[Launch], str]
) -> Plan:
    """The plan of ``loaded``.

    ``fingerprint`` gives the hex HMAC of a secret, None when it is missing, or raises ConfigError when it may not be
    used. ``unsupported`` says why nothing here can start a launch, "" when something can. Raises ConfigError.
    """
    try:
        return Resolver(loaded, fingerprint, unsupported).plan()
    except Fault as fault:
        raise loaded.error(fault.message, fault.path) from None


class Resolver:
    """Goes through the workspaces and collects variants and problems."""

    def __init__(
        self,
        loaded: Loaded,
        fingerprint: Callable[[SecretRef], str | None],
        unsupported: Callable[[Launch], str],
    ) -> None:
        self.loaded = loaded
        self.config = loaded.config
        self.fingerprint = fingerprint
        self.unsupported = unsupported
        self.variants: dict[str, Variant] = {}
        self.problems: list[Problem] = []
        self.fingerprints: dict[SecretRef, str | None] = {}
        self.unusable: dict[SecretRef, str] = {}

    def plan(self) -> Plan:
        """All of it. Raises Fault."""
        gateway = _gateway(self.config.gateway)
        written = self.config.workspaces
        if not written and not self.config.agents:
            written = {DEFAULT_WORKSPACE: Workspace(mcp_servers=("*",), registry=True)}
        workspaces = {name: self.workspace(name, workspace) for name, workspace in written.items()}
        agents: dict[str, plan.Agent] = {}
        if self.config.agents:
            from mooring.config.resolve_agents import resolved  # most configurations have none

            agents = resolved(self, workspaces)
        self._check_anonymous(gateway, workspaces.values())
        self._check_unused(agents.values())
        litellm = self._litellm()
        identity = self._identity(workspaces) if self.config.identity else ()
        catalog = tuple(self._source(name, source) for name, source in self.config.catalog.sources.items())
        teams = {name: team.members for name, team in self.config.teams.items()}
        return Plan(
            gateway=gateway,
            variants=self.variants,
            workspaces=workspaces,
            catalog=catalog,
            allowed=plan.Allowed(self.config.catalog.allow, self.config.catalog.commands),
            added=plan.Added(self._timeouts(self.config.catalog.timeouts), float(self.config.gateway.idle_timeout)),
            problems=tuple(self.problems),
            files=self.loaded.files,
            audit=policies.audit(self.config.audit, self.config.mcp_servers),
            litellm=litellm,
            telemetry=policies.telemetry(self.config.telemetry),
            agents=agents,
            teams=teams,
            identity=identity,
        )

    def _source(self, name: str, written: CatalogSource) -> plan.CatalogSource:
        path: Path = ("catalog", "sources", name)
        return plan.CatalogSource(
            name=name,
            kind=written.kind,
            url=written.url or "",
            path="" if written.path is None else self.site(path).file(written.path),
            interval=float(written.interval),
            trusted=written.trusted,
            enabled=written.enabled,
        )

    def _identity(self, workspaces: dict[str, plan.Workspace]) -> tuple[plan.Issuer, ...]:
        from mooring.config import identity  # most configurations have none

        issuers = identity.issuers(self.config.identity, workspaces)
        for issuer in issuers:
            if not issuer.admit:
                self._report("warning", f'"{issuer.name}" lets nobody in: it has no admit', ("identity", issuer.name))
        return issuers

    def _litellm(self) -> plan.LiteLLM | None:
        written = self.config.litellm
        if written is None:
            return None
        key = written.master_key.ref
        self._take_fingerprint(key)
        if self.fingerprints[key] is None:
            self._report("error", f"LiteLLM gets nothing: {self.unusable[key]}", ("litellm", "master_key"))
        return plan.LiteLLM(
            url=written.url.rstrip("/"),
            public_url=(written.public_url or written.url).rstrip("/"),
            master_key=key,
            via=written.via,
            interval=float(written.interval),
            alias_prefix=written.alias_prefix,
        )

    def workspace(self, name: str, written: Workspace, place: Path = ()) -> plan.Workspace:
        """Its mounts and rules. ``place``: where it stands, when that is not the table of a workspace. Raises Fault."""
        place = place or ("workspaces", name)
        servers = list(expand(self.config, written.mcp_servers))
        mounts = tuple(self._mount(name, written, server, place) for server in servers)
        _check_prefixes(written, mounts, place)
        known = self.config.mcp_servers
        own = policies.policy(written.policy, f'the policy of workspace "{name}"', known, (*place, "policy"))
        keys = {
            key: policies.policy(policy, f'the policy of key "{key}"', known, (*place, "keys", key))
            for key, policy in written.keys.items()
        }
        return plan.Workspace(name, mounts, written.anonymous is not None, own, keys, written.registry)

    def _mount(self, workspace: str, written: Workspace, server: str, place: Path) -> Mount:
        grant = written.mcp.get(server, Grant())
        prefix = grant.mount.prefix if grant.mount.prefix is not None else written.prefix
        if prefix is None:
            prefix = names.prefix_of(server)
        elif prefix:
            prefix = names.prefix_of(prefix)
            if message := names.prefix_fault(prefix):
                raise Fault(message, (*place, "mcp", server, "mount", "prefix"))
        variant = self._variant(workspace, server, grant, (*place, "mcp", server))
        forced = _forced(self.config.mcp_servers[server])
        sharing = _narrowest(grant.mount.sharing or self.config.mcp_servers[server].sharing, forced)
        return Mount(workspace, prefix, server, variant.id, sharing, _rules(grant.mount.tools))

    def _variant(self, workspace: str, name: str, grant: Grant, place: Path) -> Variant:
        server = self.config.mcp_servers[name]
        given = kw.merge(server.defaults, (self.config.mcp_presets[preset] for preset in grant.presets), grant.kwargs)
        used = kw.placeholders(launches.templates(server))
        kw.check_built_in(used, server.defaults, ("mcp_servers", name, "defaults"))
        kw.check_built_in(used, given, place)
        if "workspace" in used:
            given["workspace"] = workspace
        key, known = kw.variant_id(name, given), kw.canonical(given)
        if key in self.variants:
            found = self.variants[key]
            if (found.server, found.kwargs) != (name, known):
                raise Fault(f'"{name}" gets the id "{key}", which is taken; rename it', ("mcp_servers", name))
            return found
        variant = self._make(key, name, known, self.launch(workspace, name, server, given, place))
        self.variants[key] = variant
        return variant

    def site(self, path: Path) -> launches.Site:
        """Where ``path`` stands."""
        return launches.Site(path, self.loaded.file_of(path).rpartition("/")[0] or "/", self.loaded.user)

    def launch(self, workspace: str, name: str, server: AnyServer, given: dict[str, Kwarg], place: Path) -> Launch:
        """What a workspace's kwargs, written at ``place``, make of a server. Raises Fault."""
        path: Path = ("mcp_servers", name)

        def unused(key: str) -> Path:
            return (*place, key) if key in given else (*path, "defaults", key)

        try:
            return launches.build(server, {**server.defaults, **given}, self.site(path), unused)
        except Fault as fault:
            raise Fault(f'{fault.message} (in workspace "{workspace}")', fault.path) from None

    def _make(self, key: str, name: str, kwargs: str, launch: Launch) -> Variant:
        server, gateway = self.config.mcp_servers[name], self.config.gateway
        idle = gateway.idle_timeout if server.idle_timeout is None else server.idle_timeout
        unavailable = self._unavailable(name, server, launch)
        return Variant(
            id=key,
            server=name,
            kwargs=kwargs,
            digest=launches.digest(launch, self.fingerprints if server.enabled else {}),
            launch=launch,
            sharing=_narrowest(server.sharing, _forced(server)),
            dialogue=server.dialogue,
            idle_timeout=float(idle),
            spare=server.spare,
            timeouts=self._timeouts(server.timeouts),
            tools=_rules(server.tools),
            trusted=server.trust == "trusted",
            unavailable=unavailable,
        )

    def _timeouts(self, written: Timeouts) -> plan_servers.Timeouts:
        gateway = self.config.gateway
        return plan_servers.Timeouts(
            start=float(written.start or gateway.start_timeout),
            call=float(written.call or gateway.call_timeout),
            look_up=float(written.look_up),
            pull=float(written.pull),
            initialize=float(written.initialize),
            discover=float(written.discover),
            close=float(written.close),
            ready=float(written.ready),
            credentials=float(written.credentials),
        )

    def _unavailable(self, name: str, server: AnyServer, launch: Launch) -> str:
        """Why it cannot be started; "" when it can."""
        if not server.enabled:
            return "it is disabled in the configuration"
        reasons = self.missing_secrets(name, launch, ("mcp_servers", name))
        if reason := self.unsupported(launch):
            reasons.append(reason)
        if isinstance(launch, Process) and launch.sandbox is not None and launch.sandbox.network == "open":
            message = f'"{name}": its sandbox has an open network; network = "none" or a list of "host:port" closes it'
            self._report("info", message, ("mcp_servers", name, "sandbox"))
        if isinstance(launch, Container):
            self._report_inspectable(name, launch)
        return "; ".join(reasons)

    def missing_secrets(self, name: str, launch: Launch, place: Path) -> list[str]:
        """Take the fingerprints of all secrets; report those that are missing and return those that must not be."""
        reasons: list[str] = []
        for secret, ref in references(launch).items():
            self._take_fingerprint(ref)
            if self.fingerprints[ref] is not None:
                continue
            reason = f"secret {secret}: {self.unusable[ref]}"
            level = "warning" if ref.optional else "error"
            self._report(level, f'"{name}": {reason}', (*place, *_secret_path(launch, secret)))
            if not ref.optional:
                reasons.append(reason)
        return reasons

    def _report_inspectable(self, name: str, launch: Container) -> None:
        if any(not ref.as_file for ref in launch.secrets.values()):
            engines = "Docker, or Podman before 5.3,"
            message = f'"{name}": whoever may use {engines} can read its secrets there; as = "file" avoids that'
            self._report("info", message, ("mcp_servers", name, "secrets"))

    def _take_fingerprint(self, ref: SecretRef) -> None:
        if ref in self.fingerprints:
            return
        try:
            self.fingerprints[ref] = self.fingerprint(ref)
            self.unusable[ref] = ref.missing()
        except ConfigError as error:
            self.fingerprints[ref] = None
            self.unusable[ref] = error.message

    def _report(self, level: Literal["error", "warning", "info"], message: str, path: Path) -> None:
        file, line = self.loaded.place(path)
        problem = Problem(level, message, dotted(path), file, line)
        if problem not in self.problems:
            self.problems.append(problem)

    def _check_anonymous(self, gateway: plan.Gateway, workspaces: Iterable[plan.Workspace]) -> None:
        for workspace in workspaces:
            path: Path = ("workspaces", workspace.name, "anonymous")
            if not workspace.anonymous:
                continue
            if beyond_loopback(gateway.listen):
                raise Fault("gateway.listen goes beyond this machine: every workspace needs keys", path)
            self._report("warning", f'no key is needed from this machine for "{workspace.name}"', path)

    def _check_unused(self, agents: Iterable[plan.Agent]) -> None:
        mounted = {variant.server for variant in self.variants.values()}
        mounted |= {direct.server for agent in agents for direct in agent.direct}
        for name, server in self.config.mcp_servers.items():
            if name not in mounted and server.enabled:
                self._report("info", f'no workspace has "{name}"', ("mcp_servers", name))


def _gateway(written: Gateway) -> plan.Gateway:
    addresses: list[tuple[str, int]] = []
    for position, address in enumerate(written.listen):
        try:
            addresses.append(parse_address(address))
        except ValueError as error:
            raise Fault(str(error), ("gateway", "listen", position)) from None
    if not addresses:
        raise Fault("at least one address is needed", ("gateway", "listen"))
    return plan.Gateway(
        listen=tuple(addresses),
        public_url=(written.public_url or public_url(addresses[0])).rstrip("/"),
        allowed_hosts=written.allowed_hosts,
        engine=written.engine,
        max_starting=written.max_starting,
        max_instances=written.max_instances,
        pins=written.pins,
    )


def _check_prefixes(written: Workspace, mounts: tuple[Mount, ...], place: Path) -> None:
    taken: dict[str, str] = {}
    for mount in mounts:
        if not mount.prefix and len(mounts) > 1:
            where: Path = ("prefix",) if written.prefix is not None else ("mcp", mount.server, "mount", "prefix")
            raise Fault('prefix = "" is for a workspace with one server', (*place, *where))
        if mount.prefix in taken:
            raise Fault(
                f'"{taken[mount.prefix]}" and "{mount.server}" both get the prefix "{mount.prefix}"; '
                'give one another: mount = { prefix = "..." }',
                (*place, "mcp_servers"),
            )
        taken[mount.prefix] = mount.server


def _forced(server: AnyServer) -> Sharing:
    """The widest sharing that the definition allows."""
    used = kw.placeholders(launches.templates(server))
    if "session" in used or server.dialogue == "session":
        return "session"
    return "workspace" if "workspace" in used else "shared"


def _narrowest(one: Sharing, other: Sharing) -> Sharing:
    return one if _NARROWNESS.index(one) >= _NARROWNESS.index(other) else other


def _rules(tools: Tools) -> ToolRules:
    return ToolRules(tools.allow, tools.deny, tools.confirm)


def _secret_path(launch: Launch, secret: str) -> Path:
    if secret == AUTHORIZATION and isinstance(launch, Remote):
        return ("auth",)
    if secret == CLIENT_SECRET:
        return ("oauth", "client_secret")
    return ("secrets" if secret in getattr(launch, "secrets", ()) else "credentials", secret)
