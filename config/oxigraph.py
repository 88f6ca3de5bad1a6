"""The Oxigraph server from its wheel: the graphs of all organizations, when no other is named.

It listens on loopback alone (it knows no UNIX sockets) and asks nobody who they are, so it has an
address of its own, made of the data directory: not 127.0.0.1, which operators open for tools.
"""

import hashlib
import os
import socket
import sys
import sysconfig
from pathlib import Path

from config import keeper
from config.accounts import Account
from config.children import ProcessSpec

PORT = 7878
QUERY_S = 60  # the server's own limit, where it heeds it
BUSY_S = 75  # of one thread without a pause; then it is started again
MEMORY_BYTES = 2 * 1024**3
# Of each thread, as far as it is used: a long chain in a query fills it, and that ends the server
# for everybody. Queries of callers that are let through need less than 1 MiB.
STACK_BYTES = 32 * 1024**2
BINARY = Path(sysconfig.get_path("scripts")) / "oxigraph"


def host(data: Path) -> str:
    """An address of 127.0.0.0/8 for this data directory."""
    first, second, third = hashlib.sha256(os.fsencode(data)).digest()[:3]
    return f"127.{64 + first % 128}.{second}.{1 + third % 254}"


def query_url(data: Path) -> str:
    return f"http://{host(data)}:{PORT}/query"


def update_url_beside(url: str) -> str:
    """Where an endpoint takes updates whose queries go to `url`, if nobody says."""
    stem, slash, last = url.rpartition("/")
    return f"{stem}{slash}update" if last in {"query", "sparql"} else url


def server(data: Path, *, account: Account, reach: tuple[Path, ...]) -> ProcessSpec:
    """`reach` is where the interpreter and its packages lie."""
    directory, address = data / "oxigraph", (host(data), PORT)
    account.own(directory, 0o700)
    keeping = ("--busy-s", str(BUSY_S), "--memory-bytes", str(MEMORY_BYTES))
    serving = ("--location", str(directory), "--bind", f"{address[0]}:{PORT}")
    return ProcessSpec(
        name="oxigraph",
        command=(
            *(sys.executable, "-I", "-S", keeper.__file__, *keeping, "--"),
            *(str(BINARY), "serve", *serving, "--timeout-s", str(QUERY_S)),
        ),
        directory=directory,
        account=account,
        environment={"RUST_MIN_STACK": str(STACK_BYTES)},
        reach=(*reach, Path(keeper.__file__).parent, directory),
        ready=lambda: answers(address),
        alarming=r"^(ERROR|thread .* panicked)",
    )


def answers(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True
