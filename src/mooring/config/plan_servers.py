"""How one server is reached, as the resolved configuration says it: a program, a container, an address, functions of
this process, or what a plugin starts; with its limits in time and its secrets. Frozen; part of ``config.plan``. Pure.

Annotations are evaluated as they stand, for the reason given there.
"""

import msgspec

AUTHORIZATION = "authorization"
"""Name under which the secret of a remote's ``auth`` is handed to its launcher."""
CLIENT_SECRET = "oauth.client_secret"  # noqa: S105 - a name
"""Name of the secret of the client that logs in at a remote; with a dot, no secret of a server can have it."""


class Timeouts(msgspec.Struct, frozen=True):
    """Limits in seconds for the steps of a server's life; 0 is never allowed here."""

    start: float = 60.0
    """From spawn until MCP answers."""
    call: float = 300.0
    """Silence within one call; progress restarts it."""
    look_up: float = 30.0
    """Secrets, before anything is started."""
    pull: float = 600.0
    initialize: float = 30.0
    discover: float = 30.0
    """Listing after ``ready``."""
    close: float = 5.0
    ready: float = 10.0
    """SMCP: from spawn until it asks for its credentials."""
    credentials: float = 5.0
    """SMCP: until it has accepted them."""


class SecretRef(msgspec.Struct, frozen=True):
    """Where a secret value is found. ``where``: variable name, file path, keyring entry, argv, or store name."""

    kind: str
    """``env`` | ``file`` | ``keyring`` | ``command`` | ``store``"""
    where: str | tuple[str, ...]
    optional: bool = False
    as_file: bool = False

    def __str__(self) -> str:
        shown = " ".join(self.where) if isinstance(self.where, tuple) else self.where
        return f"<{self.kind} {shown}>"

    def missing(self) -> str:
        """That there is no value, and what to do about it."""
        return f"{self} is missing{_IF_MISSING[self.kind].format(self.where)}"


_IF_MISSING = {
    "env": "; set the variable where Mooring is started",
    "file": "",
    "keyring": "; add it to the keyring",
    "command": "; the command printed nothing",
    "store": "; run: mooring secret set {}",
    "plugin": "; the plugin has none",
}


class Sandbox(msgspec.Struct, frozen=True):
    """How a process is confined. Paths are absolute."""

    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    network: str | tuple[str, ...] = "open"
    memory: str = ""
    pids: int = 0


class Environment(msgspec.Struct, frozen=True):
    """A Python environment of a plugin's server, made once: its packages, and links to the code it runs."""

    folder: str
    """Absolute; its name tells it from any other. "" where only ``packages`` are asked for."""
    requirements: tuple[str, ...]
    links: dict[str, str] = {}
    """Name of an importable package or module to where it is."""
    packages: tuple[str, ...] = ()
    """System packages that have to be installed, by their Debian names."""


class Process(msgspec.Struct, frozen=True, tag="process"):
    """A command on stdio; with ``port`` it speaks HTTP there."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    secrets: dict[str, SecretRef] = {}
    credentials: dict[str, SecretRef] | None = None
    """Not None makes it an SMCP server."""
    cwd: str | None = None
    port: int | None = None
    transport: str = "stdio"
    path: str = "/mcp"
    sandbox: Sandbox | None = None
    source: str = ""
    """Digest of the code that a plugin brings for it."""
    environment: Environment | None = None
    """What has to be there before it is started."""
    fetch: tuple[str, ...] = ()
    """Command that only gets the package which ``argv`` runs, for one that has a limit and progress of its own."""


class Container(msgspec.Struct, frozen=True, tag="container"):
    """An image on stdio; with ``port`` it speaks HTTP there. ``args`` follow the image's entry point."""

    image: str
    dockerfile: str | None = None
    base: str = ""
    """The image that ``dockerfile`` builds on: its argument BASE, got like any other image before the build."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    secrets: dict[str, SecretRef] = {}
    credentials: dict[str, SecretRef] | None = None
    port: int | None = None
    ports: tuple[int, ...] = ()
    transport: str = "stdio"
    path: str = "/mcp"
    pull: str = "missing"
    volumes: tuple[str, ...] = ()
    network: str | tuple[str, ...] = "open"
    memory: str = ""
    pids: int = 0
    cpus: float = 0.0
    read_only: bool = True
    source: str = ""
    """Digest of the code that a plugin brings for it."""


class OAuth(msgspec.Struct, frozen=True):
    """How to log in at a remote: as which client, by default one that is registered then, and for what."""

    client_id: str = ""
    """With ``https://`` the address of a client metadata document."""
    client_secret: SecretRef | None = None
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0
    """0: any free one."""


class Remote(msgspec.Struct, frozen=True, tag="remote"):
    """A URL: nothing to start."""

    url: str
    transport: str = "http"
    headers: dict[str, str] = {}
    secrets: dict[str, SecretRef] = {}
    auth: str | SecretRef | None = None
    """``oauth``, or what is sent as bearer token."""
    oauth: OAuth = OAuth()


class Functions(msgspec.Struct, frozen=True, tag="functions"):
    """Something of this process: the registry, or Python functions (library only); ``name`` finds it in the
    launcher."""

    name: str


class Plugin(msgspec.Struct, frozen=True, tag="plugin"):
    """A server of a plugin that cannot be used. One that can is a ``Process`` or a ``Container``."""

    plugin: str
    why: str


Launch = Process | Container | Remote | Functions | Plugin


def references(launch: Launch) -> dict[str, SecretRef]:
    """Every secret that ``launch`` needs, by the name the launcher knows it by; ``auth`` is "authorization"."""
    match launch:
        case Process() | Container():
            return {**launch.secrets, **(launch.credentials or {})}
        case Remote(auth=SecretRef() as auth):
            return {**launch.secrets, AUTHORIZATION: auth}
        case Remote(oauth=OAuth(client_secret=SecretRef() as secret)):
            return {**launch.secrets, CLIENT_SECRET: secret}
        case Remote():
            return launch.secrets
        case Functions() | Plugin():
            return {}


def credentials(launch: Launch) -> dict[str, SecretRef] | None:
    """Those of its ``references`` that an SMCP server is given over its stdin, and that no launcher may see; None for
    any other server. No name is also in ``secrets``."""
    return launch.credentials if isinstance(launch, Process | Container) else None
