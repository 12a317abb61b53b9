"""What ``mooring check`` prints about a plan: who runs what, for whom, under which names. Pure.

Secrets show their reference, never a value; nothing is started to make it.
"""

from __future__ import annotations

from mooring.config.plan import Issuer, Mount, Plan, Variant
from mooring.config.plan_servers import (
    AUTHORIZATION,
    CLIENT_SECRET,
    Container,
    Functions,
    Launch,
    Plugin,
    Process,
    Remote,
    credentials,
    references,
)
from mooring.config.schema import Loaded
from mooring.errors import ConfigError
from mooring.nouns import InstanceKey
from mooring.nouns_check import AdmissionRow, AgentReport, CheckReport, IssuerRow, MountRow, VariantRow

DIALOGUE_OFF = (
    'a server of protocol 2025-11-25 or older cannot ask its user anything here; dialogue = "session" turns it on'
)


def check(plan: Plan, loaded: Loaded) -> CheckReport:
    """The report; ``ok`` is False when a problem is an error."""
    mounts = [mount for workspace in plan.workspaces.values() for mount in workspace.mounts]
    return CheckReport(
        ok=not any(problem.level == "error" for problem in plan.problems),
        files=loaded.files,
        variants=tuple(_variant(variant, mounts) for variant in plan.variants.values()),
        mounts=tuple(
            MountRow(mount.workspace, mount.prefix, mount.server, mount.variant, mount.sharing) for mount in mounts
        ),
        problems=plan.problems,
        identity=tuple(_issuer(issuer, plan.gateway.public_url) for issuer in plan.identity),
    )


def agent(plan: Plan, name: str) -> AgentReport:
    """How an agent gets its servers. Raises ConfigError when there is none of that name."""
    found = next((agent for agent in plan.agents.values() if agent.name == name), None)
    if found is None:
        known = ", ".join(dict.fromkeys(agent.name for agent in plan.agents.values())) or "none"
        raise ConfigError(f'There is no agent "{name}". Agents: {known}.')
    teams = tuple(team for team, members in plan.teams.items() if name in members)
    return AgentReport(name, found.type, found.workspace, teams, found.servers, found.tools, found.confirm)


def _issuer(issuer: Issuer, base: str) -> IssuerRow:
    from mooring.access.claims import audiences  # most configurations have none

    return IssuerRow(
        name=issuer.name,
        url=issuer.url,
        audience=audiences(issuer, base),
        jwks=issuer.jwks,
        algorithms=issuer.algorithms,
        scopes=issuer.scopes,
        leeway=issuer.leeway,
        admit=tuple(
            AdmissionRow(each.workspace, each.claims, each.scopes, each.tools, each.key) for each in issuer.admit
        ),
    )


def _variant(variant: Variant, mounts: list[Mount]) -> VariantRow:
    mine = [mount for mount in mounts if mount.variant == variant.id]
    return VariantRow(
        id=variant.id,
        server=variant.server,
        kind=str(variant.launch.__struct_config__.tag),
        command=command(variant.launch),
        env=_env(variant.launch),
        instance_keys=tuple(dict.fromkeys(_instance_key(variant, mount) for mount in mine)),
        sharing=variant.sharing,
        shared_by=tuple(mount.workspace for mount in mine),
        idle_timeout=variant.idle_timeout,
        dialogue=_dialogue(variant),
        unavailable=variant.unavailable,
        credentials=_credentials(variant.launch),
        confined=_confined(variant.launch) if isinstance(variant.launch, Container) else (),
    )


def command(launch: Launch) -> tuple[str, ...]:
    """Exactly what would be run."""
    match launch:
        case Process():
            return launch.argv
        case Container():
            return (launch.image, *launch.args)
        case Remote():
            return (launch.url,)
        case Plugin():
            return (launch.plugin,)
        case Functions():
            return (launch.name,)


def _confined(launch: Container) -> tuple[str, ...]:
    """What a container gets, in words."""
    allowed = launch.network if isinstance(launch.network, str) else f"only {', '.join(launch.network)}"
    processors = f"{launch.cpus:g}" if launch.cpus else ""
    limits = {"memory": launch.memory, "processes": launch.pids, "processors": processors}
    ports = (*(() if launch.port is None else (launch.port,)), *launch.ports) if launch.network == "open" else ()
    return (
        f"network: {allowed}",
        *(f"{what}: {limit or 'no limit'}" for what, limit in limits.items()),
        "root: read-only, with 64 MB in /tmp" if launch.read_only else "root: writable, gone with the container",
        *(f"mount: {volume}" for volume in launch.volumes),
        *(f"port: {port}, published on a free port of 127.0.0.1" for port in ports),
    )


def _env(launch: Launch) -> dict[str, str]:
    """Environment or headers, with secrets."""
    plain = launch.headers if isinstance(launch, Remote) else getattr(launch, "env", {})
    hidden = {CLIENT_SECRET, *(credentials(launch) or ())}
    named = {name: str(ref) for name, ref in references(launch).items() if name not in hidden}
    return {**plain, **{"Authorization" if name == AUTHORIZATION else name: ref for name, ref in named.items()}}


def _credentials(launch: Launch) -> dict[str, str] | None:
    refs = credentials(launch)
    return None if refs is None else {name: str(ref) for name, ref in refs.items()}


def _instance_key(variant: Variant, mount: Mount) -> str:
    scope = {"shared": "", "workspace": f"w:{mount.workspace}", "session": ""}[mount.sharing]
    id = InstanceKey(variant.id, variant.digest, scope).id
    return f"{id} s:<session>" if mount.sharing == "session" else id


def _dialogue(variant: Variant) -> str:
    launch = variant.launch
    on_stdio = isinstance(launch, Process | Container) and launch.transport == "stdio"
    return DIALOGUE_OFF if on_stdio and variant.dialogue != "session" else ""
