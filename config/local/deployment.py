"""Deployment on one machine, from an empty data directory to ready: `manage.py up`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from audit import partitions
from audit.log import checkpoint_publication, key_files
from config import database, timeouts
from config.env import env_text
from config.local import (
    address,
    datadir,
    embedded,
    postgres,
    process_specs,
    unix_accounts,
)
from config.local.child_processes import ProcessSpec, launch_command
from config.local.supervisor import StartFailed, StopRequested, Supervisor
from config.local.unix_accounts import sandbox_account

UNSHARE_PROGRAM = (
    "import os; os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNS | os.CLONE_NEWPID | os.CLONE_NEWNET)"
)
BLOCKING_SETTINGS = {
    "kernel/unprivileged_userns_clone": "0",
    "user/max_user_namespaces": "0",
    "kernel/apparmor_restrict_unprivileged_userns": "1",
}
READY_MESSAGE = """
Toolcrib is ready at {url}
  Log in:              {url}/
  An agent's token:    {python} manage.py create_agent my-agent
  The API, to try:     {url}/api/docs/
Ctrl-C stops everything."""


def missing_features(reach: tuple[Path, ...]) -> list[str]:
    """A sentence for each feature that is not there; sandboxed tools will then be refused."""
    missing = []
    if not _namespaces_work(reach):
        missing.append(
            f"User namespaces are not permitted here{_blocking_setting()}:"
            " tools that need isolation will be refused."
        )
    if "Seccomp:" not in Path("/proc/self/status").read_text(encoding="utf-8"):
        missing.append("This kernel has no seccomp: tools that need isolation will be refused.")
    return missing


class CannotReach(Exception):
    """A server that was named by its URL does not answer."""


@dataclass(frozen=True)
class DeploymentOptions:
    address: address.Address
    browser: bool
    first_administrator: Callable[[], str | None]  # the password when it has just been made
    report: Callable[[str], None]


def run(options: DeploymentOptions) -> None:
    """Start everything, report its address, and return when all of it has stopped again."""
    data: Path = settings.DATA_DIR
    with datadir.locked_directory(data):
        take_over(data)
        supervisor = Supervisor(data, report=options.report)
        try:
            with supervisor.signals(), supervisor:
                start_processes(supervisor, data, options)
                options.report(
                    READY_MESSAGE.format(
                        url=_public_url(options.address), python=_shorter_path(sys.executable)
                    )
                )
                supervisor.watch()
        except StopRequested:
            pass
        finally:
            process_specs.remove_cgroups(data)
            shutil.rmtree(data / "settings", ignore_errors=True)
            embedded.remove_socket_directory(data, kept=_external_stores())


def take_over(data: Path) -> None:
    try:
        datadir.take_over(data, settings.ANCHORS_DIR, settings.METRICS_DIR)
    except OSError as error:
        raise datadir.DataDirectoryUnusable(
            f"{error.filename or data} cannot be given to the account that uses it"
            f" ({error.strerror}): start Toolcrib as an ordinary user, or set TOOLCRIB_DATA to a"
            " local disk."
        ) from error


def start_processes(supervisor: Supervisor, data: Path, options: DeploymentOptions) -> None:
    timeouts.assert_order()
    shared = unix_accounts.missing_separation()
    if shared:
        options.report(shared)
    options.address.check_free()
    check_port(options.address)
    for sentence in missing_features(process_specs.interpreter()):
        options.report(sentence)
    start_stores(supervisor, data)
    sandboxd = process_specs.sandboxd(data)
    supervisor.start_soon(process_specs.egress(data))
    supervisor.start_soon(sandboxd)
    migrate()
    # Before any worker takes a call: a restored database has old checkpoints.
    checkpoint_publication.compare_logs()
    password = options.first_administrator()
    key_files.prepare_keys()
    take_over(data)  # what was made since the start
    database.close_connections()
    if password:
        options.report(f"Administrator: admin\nPassword:      {password}   (shown this once)")
    live_port = options.address.choose_port(settings.LIVE_PORT)
    os.environ |= {"LIVE_PORT": str(live_port), "WEB_PORT": str(options.address.port)}
    supervisor.start(
        process_specs.worker(data, threads=settings.WORKER_THREADS),
        process_specs.housekeeper(data),
        process_specs.beat(data),
        process_specs.sealer(data),
        process_specs.live(data, address.Address(options.address.host, live_port)),
        process_specs.web(data, options.address),
    )
    supervisor.wait_until(sandboxd.ready, by="sandboxd")
    wait_ready(supervisor, options.address)
    if options.browser:
        open_browser(supervisor, _public_url(options.address))


def check_port(place: address.Address) -> None:
    """Root may listen anywhere, and the account of the web process may not."""
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text("ascii"))
    if place.port < first and not unix_accounts.product_account("web").is_ours:
        raise address.CannotListen(
            f"Port {place.port} is root's alone, and the web process does not run as root: choose"
            f" one from {first} on, with a reverse proxy in front, or lower the sysctl"
            " net.ipv4.ip_unprivileged_port_start."
        )


def start_stores(supervisor: Supervisor, data: Path) -> None:
    server, broker = env_text("DATABASE_URL"), env_text("REDIS_URL")
    if not server:
        supervisor.start_soon(embedded.database_server(data))
    if not broker:
        supervisor.start_soon(embedded.broker_server(data))
    if not env_text("SPARQL_URL"):
        supervisor.start_soon(process_specs.knowledge(data))
    supervisor.wait_until(supervisor.all_ready, by="PostgreSQL, Valkey or Oxigraph")
    if server:
        check_database(server)
    if broker:
        check_broker(broker)


def check_database(url: str) -> None:
    """Checked without Django's pool, which retries and logs for ten seconds."""
    try:
        psycopg.connect(url, connect_timeout=10).close()
    except psycopg.Error as error:
        raise CannotReach(
            f"PostgreSQL of DATABASE_URL does not answer: {_first_line(error)}"
        ) from error


def check_broker(url: str) -> None:
    try:
        with redis.Redis.from_url(url, socket_timeout=5) as client:
            client.ping()
    except (redis.RedisError, ValueError) as error:
        raise CannotReach(
            f"The server of REDIS_URL does not answer: {_first_line(error)}"
        ) from error


def migrate() -> None:
    """Run the command, which makes partitions too, only when a migration is missing: it costs a
    second."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)
    else:
        partitions.make_all_partitions()


def wait_ready(supervisor: Supervisor, place: address.Address) -> None:
    supervisor.wait_until(place.listening, by="web")
    flaw: str | None = None

    def ready() -> bool:
        nonlocal flaw
        flaw = place.readiness_flaw()
        return flaw is None

    try:
        supervisor.wait_until(ready, by="Toolcrib")
    except StartFailed as failure:
        raise StartFailed(f"{failure} /readyz: {flaw}") from failure


def open_browser(supervisor: Supervisor, url: str) -> None:
    program = shutil.which("xdg-open")
    if program and sys.stdout.isatty() and os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}:
        opener = subprocess.Popen(
            [program, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        supervisor.foreign_sessions |= {opener.pid}


def _namespaces_work(reach: tuple[Path, ...]) -> bool:
    spec = ProcessSpec(
        name="kernel",
        command=(sys.executable, "-I", "-S", "-c", UNSHARE_PROGRAM),
        directory=Path("/"),
        account=sandbox_account(),
        reach=reach,
    )
    return not subprocess.run(
        launch_command(spec), env={}, capture_output=True, check=False
    ).returncode


def _blocking_setting() -> str:
    for name, forbids in BLOCKING_SETTINGS.items():
        switch = Path("/proc/sys", name)
        if os.access(switch, os.R_OK) and switch.read_text(encoding="ascii").strip() == forbids:
            return f" (sysctl {name.replace('/', '.')} is {forbids})"
    return ""


def _external_stores() -> list[str]:
    addresses = {"database": env_text("DATABASE_URL"), "broker": env_text("REDIS_URL")}
    return [place for place, address in addresses.items() if address]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _shorter_path(python: str) -> str:
    here = os.path.relpath(python)
    return here if len(here) < len(python) else python


def _public_url(place: address.Address) -> str:
    """Where browsers reach it: behind TLS, under the first name that it answers to."""
    return f"https://{settings.ALLOWED_HOSTS[0]}" if settings.HTTPS else str(place)


CANNOT_START = (
    CannotReach,
    unix_accounts.NoAccount,
    address.CannotListen,
    timeouts.TimeoutsDisordered,
    datadir.DataDirectoryUnusable,
    embedded.UnsafeDirectory,
    key_files.BadKey,
    postgres.CannotPrepare,
    StartFailed,
)
