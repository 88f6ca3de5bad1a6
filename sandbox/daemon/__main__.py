"""`python -m sandbox.daemon`: started fresh with an empty environment, no Django, no secrets."""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from sandbox.daemon import cgroups, launch, privileges, reap
from sandbox.daemon.logs import log, log_crash
from sandbox.daemon.server import Server, Service, listen
from sandbox.daemon.slots import Slots
from sandbox.daemon.template import Template
from sandbox.inside import libc
from sandbox.spec import Profile

_HOUSEKEEPING_S = 1.0
_SWITCH_INTERVAL_S = 0.001


def main() -> int:
    options = read_options()
    os.umask(0o022)
    threading.excepthook = log_crash
    # Before root is given away: the directory of the socket may be root's.
    listener = None if options.probe else listen(options.socket)
    if os.geteuid() == 0:
        privileges.drop_root(options.cgroup_root)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    reap.become_subreaper()
    driver = choose_cgroups(options.cgroup_root)
    slots = Slots(template_maker(options, driver))
    service = Service(slots, reap.Janitor(), driver.mode)
    try:
        capability = service.probe()
        if listener is None:
            print(json.dumps(capability.to_wire()))
            return 0 if capability.ceiling else 1
        log("ready", pid=os.getpid(), uid=os.geteuid(), **capability.to_wire())
        serve(Server(listener, frozenset(options.allow_uid), service), slots)
    finally:
        slots.close()
        driver.clean()
    return 0


def serve(server: Server, slots: Slots) -> NoReturn:
    """Housekeeping is the main thread's work; it ends by a signal."""
    threading.Thread(target=server.serve, daemon=True, name="accept").start()
    while True:
        time.sleep(_HOUSEKEEPING_S)
        slots.keep_house()
        reap.reap_orphans()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.daemon", description=__doc__)
    parser.add_argument("--socket", required="--probe" not in sys.argv, default="")
    parser.add_argument("--allow-uid", type=int, action="append", default=[])
    parser.add_argument("--cgroup-root", default="toolcrib")
    parser.add_argument("--slots", type=int, default=4, help="ready slots per template")
    parser.add_argument("--bwrap", default="", help="instead of the one that is found")
    parser.add_argument("--probe", action="store_true", help="print what can be had and end")
    return parser.parse_args()


def choose_cgroups(name: str) -> cgroups.Driver:
    driver = cgroups.choose(name)
    log("cgroups", mode=driver.mode, leftovers_removed=driver.clean())
    return driver


def template_maker(
    options: argparse.Namespace, driver: cgroups.Driver
) -> Callable[[Profile], Template]:
    bwrap = options.bwrap or launch.find_bwrap()
    return lambda profile: Template(
        partial(launch.namespaced, bwrap, profile), driver, options.slots
    )


if __name__ == "__main__":
    sys.exit(main())
