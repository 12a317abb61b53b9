"""A real LiteLLM proxy on a real PostgreSQL, for the tests of this folder; run as a program it prepares them.

What LiteLLM uses as database client, Prisma, wants a query engine in native code that no package registry has. Its
place is taken by ``engine/main.cjs``, which runs the same engine as WebAssembly. Everything else is as released.
``make litellm`` installs all of it; PostgreSQL comes from the system.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2

HERE = Path(__file__).parent
VENV = HERE.parent.parent / ".venv-litellm"
READY = VENV / "ready"
"""Exists when the virtual environment, the engine and the database client are in place."""
ENGINE = HERE / "engine" / "main.cjs"
MASTER_KEY = f"sk-{secrets.token_hex(16)}"
"""Not to be guessed: the proxy listens on every address of the machine."""
MIGRATED = "migrated"
"""Database that others are copied from."""
START = 120.0
"""Seconds until the proxy answers: it imports for 12 s on an idle machine."""
STEP = 60.0


def missing() -> str:
    """What is not installed, and how to get it; "" when nothing is missing."""
    if not READY.exists():
        return "LiteLLM is not installed here; run: make litellm"
    if not shutil.which("node"):
        return "node is not installed (Debian: apt-get install nodejs npm)"
    if not _postgres("initdb"):
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    return ""


def prepare() -> None:
    """Write the database client into the virtual environment; part of ``make litellm``."""
    schema = next(VENV.glob("lib/*/site-packages/litellm/proxy/schema.prisma"))
    scratch = VENV / "scratch"
    scratch.mkdir(exist_ok=True)
    command = [VENV / "bin" / "prisma", "generate", "--schema", schema]
    subprocess.run(command, check=True, env=_environment(scratch), cwd=scratch, stdout=subprocess.DEVNULL, timeout=300)
    READY.touch()


def _environment(scratch: Path) -> dict[str, str]:
    """Nothing is fetched from anywhere but npm, and nothing is told to anybody."""
    engines = ("QUERY_ENGINE_BINARY", "QUERY_ENGINE_LIBRARY", "SCHEMA_ENGINE_BINARY", "FMT_BINARY")
    npm = {
        name: value for name, value in os.environ.items() if name.lower().startswith(("npm_config_", "ssl_", "node_"))
    }
    return {
        **npm,
        **{f"PRISMA_{engine}": str(ENGINE) for engine in engines},
        "PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(scratch),
        "PRISMA_ENGINES_MIRROR": "http://127.0.0.1:9",
        "CHECKPOINT_DISABLE": "1",
        "npm_config_ignore_scripts": "true",
        "npm_config_userconfig": os.path.expanduser("~/.npmrc"),
        "npm_config_cache": os.path.expanduser("~/.npm"),
    }


class Database:
    """A PostgreSQL server of its own in a temporary folder; ``with`` ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        # PostgreSQL does not run as root.
        self._user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        if self._user:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)

    def __enter__(self) -> Database:
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
        settings = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        self._run("pg_ctl", "-D", data, "-w", "-l", str(self.folder / "log"), "-o", settings, "start")
        try:
            self._migrate()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def create(self, name: str) -> str:
        """A new database with LiteLLM's tables, all empty; its URL."""
        self.sql("postgres", f'CREATE DATABASE "{name}" TEMPLATE "{MIGRATED}"')
        return self.url(name)

    def empty(self, name: str) -> None:
        """Throw every row away."""
        tables = self.sql(name, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'").split()
        self.sql(name, "TRUNCATE " + ", ".join(f'"{table}"' for table in tables) + " CASCADE")

    def sql(self, database: str, *statements: str) -> str:
        """What psql prints: one row a line."""
        commands = [part for statement in statements for part in ("-c", statement)]
        return self._psql(database, *commands)

    def _migrate(self) -> None:
        folder = next(VENV.glob("lib/*/site-packages/litellm_proxy_extras/migrations"))
        files = sorted(folder.glob("*/migration.sql"))
        self.sql("postgres", f'CREATE DATABASE "{MIGRATED}"')
        self._psql(MIGRATED, *(part for file in files for part in ("-f", str(file))))

    def _psql(self, database: str, *arguments: str) -> str:
        program = _postgres("psql")
        command = [program, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", self.url(database), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=STEP, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def _run(self, program: str, *arguments: str) -> None:
        log = self.folder / f"{program}.log"
        with log.open("ab") as output:  # not a pipe: the server would keep it open
            user = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
            ran = subprocess.run(
                [_postgres(program), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                timeout=STEP,
                check=False,
                **user,
            )
        assert ran.returncode == 0, log.read_text()


class Proxy:
    """LiteLLM as a process of its own."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self._database = database
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "litellm.log").read_text("utf-8", "replace")

    def start(self) -> None:
        """Returns once it answers and has its database."""
        config = self.folder / "config.yaml"
        config.write_text(f"general_settings:\n  master_key: {MASTER_KEY}\n")
        environment = {
            **_environment(self.folder),
            "DATABASE_URL": self._database,
            "DISABLE_SCHEMA_UPDATE": "true",
            "STORE_MODEL_IN_DB": "True",
            "LITELLM_SALT_KEY": "sk-salt-of-tests",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "CONFIG_FILE_PATH": str(config),
        }
        port = self.url.rpartition(":")[2]
        app = "litellm.proxy.proxy_server:app"
        # As LiteLLM's own command does; containers reach it, too.
        command = [VENV / "bin" / "python", "-m", "uvicorn", app, "--host", "0.0.0.0", "--port", port]
        with (self.folder / "litellm.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """SIGKILL: what a crash would leave behind."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STEP)
            self._process = None

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log
            try:
                answer = httpx2.get(f"{self.url}/health/readiness", timeout=5, trust_env=False)
                if answer.status_code == 200 and answer.json().get("db") == "connected":
                    return
            except (httpx2.HTTPError, ValueError):
                pass
            time.sleep(0.2)
        raise TimeoutError(self.log)


@contextmanager
def running(folder: Path) -> Generator[tuple[Database, Proxy]]:
    """Both, as long as the block lasts."""
    (folder / "postgres").mkdir()
    with Database(folder / "postgres") as database:
        proxy = Proxy(folder, database.create("litellm"))
        proxy.start()
        try:
            yield database, proxy
        finally:
            proxy.stop()


def missing_columns(database: Database) -> set[tuple[str, str]]:
    """What LiteLLM's schema has and its migrations did not make: (table, column)."""
    schema = next(VENV.glob("lib/*/site-packages/litellm/proxy/schema.prisma")).read_text()
    models = dict(re.findall(r"^model\s+(\w+)\s*\{(.*?)^\}", schema, re.M | re.S))
    wanted: set[tuple[str, str]] = set()
    for table, body in models.items():
        for column, kind, rest in re.findall(r"^\s+(\w+)\s+(\w+)(.*)$", body, re.M):
            if kind not in models:  # else it is a relation
                renamed = re.search(r'@map\("(\w+)"\)', rest)
                wanted.add((table, renamed[1] if renamed else column))
    query = "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'"
    rows = (line.split("|") for line in database.sql("litellm", query).splitlines())
    return wanted - {(table, column) for table, column in rows}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _postgres(program: str) -> str | None:
    """Debian keeps the server's programs off PATH."""
    places = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{program}"), reverse=True)
    return next(iter(places), None) or shutil.which(program)


if __name__ == "__main__":
    prepare()
    sys.exit(0)
