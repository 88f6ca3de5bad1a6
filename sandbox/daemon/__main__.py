"""`python -m sandbox.daemon`: started fresh with an empty environment, no Django, no secrets."""

import argparse
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from sandbox.backends.backend_registry import BackendRegistry
from sandbox.backends.container import ContainerBackend
from sandbox.backends.monty_backend import MontyBackend
from sandbox.backends.process_backend import DegradedBackend, ProcessBackend
from sandbox.daemon import account_helper, privileges, subprocesses
from sandbox.daemon.daemon_log import log, log_crash
from sandbox.daemon.daemon_server import Server, Service, listen
from sandbox.daemon.lasting_servers import SandboxedServers
from sandbox.daemon.limits import cgroups
from sandbox.daemon.limits.operations import Counter
from sandbox.daemon.run_accounts import AccountHelperClient, Accounts, choose
from sandbox.daemon.runs import janitor, launch
from sandbox.daemon.runs.sandbox_run import EgressSockets
from sandbox.daemon.runs.scratch import clear, make_root
from sandbox.daemon.runs.slots import Slots
from sandbox.daemon.trials.capability import Capability
from sandbox.inside.layers import libc
from sandbox.machine import Facts
from sandbox.spec import IsolationLevel, Profile

_SWITCH_INTERVAL_S = 0.001


def main() -> int:
    options = read_options()
    prepare_process()
    # Before root is given away: the directory of the socket may be root's.
    listener = None if options.probe else listen(options.socket)
    helper, removed = become_ordinary(options) if os.geteuid() == 0 else (None, 0)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    subprocesses.become_subreaper()
    threading.Thread(
        target=subprocesses.reap_orphans_forever, daemon=True, name="undertaker"
    ).start()
    with opened(options, helper and AccountHelperClient(*helper), removed) as daemon:
        capability = daemon.examine()
        if listener is not None:
            log("ready", pid=os.getpid(), uid=os.geteuid(), **capability.summary())
            daemon.serve(listener, frozenset(options.allow_uid))
        print(json.dumps(capability.to_wire()))
        return 0 if capability.serves(IsolationLevel.STANDARD) else 1


def become_ordinary(options: argparse.Namespace) -> tuple[tuple[socket.socket, int], int]:
    """What is left of root is a process that gives users to templates. How many groups of earlier
    runs were removed."""
    removed = privileges.prepare_for_user(options.cgroup_root, options.uid)
    trees = cgroups.hierarchies(options.cgroup_root)
    groups = [tree for kind, tree in trees.items() if kind != "v2"]
    helper = account_helper.fork(options.uid, groups)
    privileges.drop_root(options.uid)
    return helper, removed


def prepare_process() -> None:
    os.umask(0o022)
    threading.excepthook = log_crash
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # Threads wait for them, so that none comes between a look and a rest. Children that are
    # started here get an empty mask again.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})


class Sandboxd:
    """What this daemon is made of, put together."""

    def __init__(
        self, options: argparse.Namespace, accounts: Accounts, driver: cgroups.Driver,
        scratch: str, bundles: str,
    ) -> None:  # fmt: skip
        self._accounts = accounts
        self._options, self._driver = options, driver
        self._bwrap, self._bwrap_flaw = bwrap_of(options)
        self._counter = Counter()
        self._counter.start()
        stock = options.slots
        process = ProcessBackend(self._bwrap, scratch, accounts, driver, self._counter, stock=stock)
        degraded = DegradedBackend(
            scratch, accounts, driver, self._counter, stock, allowed=options.allow_degraded
        )
        backends = BackendRegistry(
            (
                process,
                degraded,
                MontyBackend(process.template),
                ContainerBackend(bundles, driver),
            )
        )
        self._slots, self._janitor = Slots(backends.template), janitor.Janitor()
        doors = EgressSockets(options.egress)
        self._servers = SandboxedServers(
            self._bwrap, driver, self._counter, self._janitor, doors,
            accounts=accounts, most=options.servers, most_each=options.servers_each,
        )  # fmt: skip
        self._service = Service(
            self._slots,
            backends,
            self._janitor,
            doors,
            self._servers,
            accounts=accounts,
            cgroup_mode=driver.mode,
        )

    def examine(self) -> Capability:
        return self._service.examine(
            Facts(
                cgroup_mode=self._driver.mode,
                weighted=self._driver.weighted,
                accounts_flaw=self._accounts.flaw,
                bwrap_flaw=self._bwrap_flaw,
                egress_flaw=None if self._options.egress else "no egress broker was named",
                degraded_allowed=self._options.allow_degraded,
            )
        )

    def serve(self, listener: socket.socket, allowed: frozenset[int]) -> NoReturn:
        """Until a signal ends it."""
        self._slots.keep_spare(Profile(IsolationLevel.STANDARD))
        server = Server(listener, allowed, self._service)
        for name, work in (("accept", server.serve), ("housekeeping", self._slots.keep_house)):
            threading.Thread(target=work, daemon=True, name=name).start()
        signal.sigwait({signal.SIGTERM})
        sys.exit(0)

    def close(self) -> None:
        """End everything, runs included."""
        self._servers.close()
        self._slots.close()
        self._janitor.close()
        self._counter.close()
        self._accounts.close()


@contextmanager
def opened(
    options: argparse.Namespace, helper: AccountHelperClient | None, removed: int
) -> Iterator[Sandboxd]:
    driver = cgroups.choose(options.cgroup_root)
    log("cgroups", mode=driver.mode, leftovers_removed=removed + driver.clean())
    place = Path(options.scratch or tempfile.mkdtemp(prefix="toolcrib-"))
    runs = make_root(str(place / "runs"))
    accounts = choose(helper, runs)
    daemon = Sandboxd(options, accounts, driver, runs, str(place / "containers"))
    try:
        yield daemon
    finally:
        daemon.close()
        clear(str(place), whole=not options.scratch)
        driver.clean()


def bwrap_of(options: argparse.Namespace) -> tuple[str, str | None]:
    """Its path, or why there is none: then nothing with namespaces can be had."""
    try:
        return options.bwrap or launch.find_bwrap(), None
    except FileNotFoundError as error:
        return "", str(error)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.daemon", description=__doc__)
    parser.add_argument("--socket", required="--probe" not in sys.argv, default="")
    parser.add_argument("--allow-uid", type=int, action="append", default=[])
    parser.add_argument("--uid", type=int, default=privileges.SANDBOX_UID, help="after root")
    parser.add_argument("--cgroup-root", default="toolcrib")
    parser.add_argument("--slots", type=int, default=4, help="ready slots per template")
    parser.add_argument("--servers", type=int, default=64, help="lasting ones, at most")
    parser.add_argument("--servers-each", type=int, default=16, help="of one organization")
    parser.add_argument("--egress", default="", help="socket of the egress broker")
    parser.add_argument("--scratch", default="", help="for runs without a mount namespace")
    parser.add_argument("--bwrap", default="", help="instead of the one that is found")
    parser.add_argument("--probe", action="store_true", help="print what can be had and end")
    parser.add_argument(
        "--allow-degraded", action="store_true", help="Standard without namespaces, if need be"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
