"""The embedded Oxigraph server from its wheel: the graphs of all organizations, by default.

It listens on loopback alone (it has no UNIX sockets) without authentication, so it has an address
of its own, derived from the data directory: not 127.0.0.1, which operators open for tools.
"""

import hashlib
import http.client
import os
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from config.local import watchdog
from config.local.child_processes import ProcessSpec, launch_command
from config.local.unix_accounts import UnixAccount

PORT = 7878
QUERY_S = 60  # the server's own limit, where it heeds it
BUSY_S = 75  # of one thread without a pause; then it is started again
MEMORY_BYTES = 2 * 1024**3
# Of each thread, as far as it is used: a long chain in a query fills it, and that ends the server
# for all callers. Queries of callers that are let through need less than 1 MiB.
STACK_BYTES = 32 * 1024**2
# The watchdog ends a server one of whose threads never pauses, so a reader of all graphs does.
READ_S, READ_PAUSE_S = 30.0, 3 * watchdog.SAMPLE_S
BINARY = Path(sysconfig.get_path("scripts")) / "oxigraph"


class GraphCopyFailed(Exception):
    """The graphs could not be dumped or loaded; the message says why."""


def host(data: Path) -> str:
    """An address of 127.0.0.0/8 for this data directory."""
    first, second, third = hashlib.sha256(os.fsencode(data)).digest()[:3]
    return f"127.{64 + first % 128}.{second}.{1 + third % 254}"


def query_url(data: Path) -> str:
    return f"http://{host(data)}:{PORT}/query"


def update_url_beside(url: str) -> str:
    """The default update URL of an endpoint whose queries go to `url`."""
    stem, slash, last = url.rpartition("/")
    return f"{stem}{slash}update" if last in {"query", "sparql"} else url


def server_spec(data: Path, *, account: UnixAccount, reach: tuple[Path, ...]) -> ProcessSpec:
    """`reach` is where the interpreter and its packages lie."""
    directory, address = data / "oxigraph", (host(data), PORT)
    account.make_directory(directory, 0o700)
    keeping = ("--busy-s", str(BUSY_S), "--memory-bytes", str(MEMORY_BYTES))
    serving = ("--location", str(directory), "--bind", f"{address[0]}:{PORT}")
    return ProcessSpec(
        name="oxigraph",
        command=(
            *(sys.executable, "-I", "-S", watchdog.__file__, *keeping, "--"),
            *(str(BINARY), "serve", *serving, "--timeout-s", str(QUERY_S)),
        ),
        directory=directory,
        account=account,
        environment={"RUST_MIN_STACK": str(STACK_BYTES)},
        reach=(*reach, Path(watchdog.__file__).parent, directory),
        ready=lambda: is_listening(address),
        alarming=r"^(ERROR|thread .* panicked)",
    )


def is_listening(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


def dump_graphs(data: Path) -> Iterator[bytes]:
    """All graphs of the server that runs as N-Quads, as they are at one moment. Raises
    `GraphCopyFailed`, also where the server ends before it has output everything."""
    with closing(http.client.HTTPConnection(host(data), PORT, timeout=60)) as server:
        try:
            server.request("GET", "/store", headers={"Accept": "application/n-quads"})
            answer = server.getresponse()
            if answer.status != http.client.OK:
                raise GraphCopyFailed(
                    f"The graphs could not be dumped: Oxigraph says {answer.status}."
                )
            paused_at = time.monotonic()
            while part := answer.read(1 << 20):
                yield part
                if time.monotonic() - paused_at > READ_S:
                    time.sleep(READ_PAUSE_S)
                    paused_at = time.monotonic()
        except (OSError, http.client.HTTPException) as error:
            output = str(error) or type(error).__name__
            raise GraphCopyFailed(f"The graphs could not be dumped: {output}") from error


def load_graphs(
    data: Path, quads: Iterable[bytes], *, account: UnixAccount, reach: tuple[Path, ...]
) -> None:
    """Into a store that is empty, while no server has it: all or nothing.

    Raises `GraphCopyFailed`.
    """
    directory = data / "oxigraph"
    account.make_directory(directory, 0o700)
    spec = ProcessSpec(
        name="oxigraph",
        command=(str(BINARY), "load", "--location", str(directory), "--format", "nq"),
        directory=directory,
        account=account,
        reach=(*reach, directory),
    )
    with subprocess.Popen(
        launch_command(spec),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"RUST_MIN_STACK": str(STACK_BYTES)},
    ) as loading:
        assert loading.stdin is not None and loading.stderr is not None
        with suppress(BrokenPipeError), loading.stdin:  # its status and its last words say why
            for part in quads:
                loading.stdin.write(part)
        output = loading.stderr.read().decode("utf-8", "replace").strip().splitlines()
    if loading.returncode:
        raise GraphCopyFailed(
            f"The graphs could not be loaded: {output[-1] if output else 'no reason'}"
        )
