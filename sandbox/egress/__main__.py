"""`python -m sandbox.egress`: the one process through which runs reach other machines.

Started fresh with an empty environment, as a user that owns nothing; no Django, no database. What
it knows of secrets are the credentials in the policies of runs that are under way.
"""

import argparse
import asyncio
import os
import resource
import signal
import socket
import ssl
import sys

from sandbox.daemon.daemon_log import log
from sandbox.egress.broker import EgressBroker, Users, listen
from sandbox.egress.dial import Dialer, Resolver, client_context, prepare_system_lookup
from sandbox.egress.rules.addresses import AddressGate, read_network
from sandbox.inside.layers import libc


def main() -> int:
    options = read_options()
    os.umask(0o022)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)  # no process of the same user reads what is in memory here
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    prepare_system_lookup()
    try:
        trust = client_context(options.ca)
    except OSError as error:  # every ssl.SSLError is one
        sys.exit(f"the certificates cannot be read: {error}")
    try:
        listener = listen(options.socket)
    except OSError as error:
        sys.exit(f"no socket can be made: {error}")
    asyncio.run(serve(options, trust, listener))
    os._exit(0)  # an abandoned lookup may still hang in its thread


async def serve(
    options: argparse.Namespace, trust: ssl.SSLContext, listener: socket.socket
) -> None:
    """Until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    dialer = Dialer(Resolver(), AddressGate(options.allow_private), trust)
    broker = EgressBroker(dialer, Users(frozenset(options.worker_uid), options.sandbox_uid))
    with listener:
        serving = asyncio.ensure_future(broker.serve(listener))
        stopping = asyncio.ensure_future(stop.wait())
        log("ready", pid=os.getpid(), uid=os.geteuid(), authorities=len(trust.get_ca_certs()))
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        serving.cancel()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m sandbox.egress")
    parser.add_argument("--socket", required=True)
    parser.add_argument(
        "--worker-uid", type=int, action="append", required=True, help="may open tickets"
    )
    parser.add_argument("--sandbox-uid", type=int, required=True, help="may attach runs")
    parser.add_argument(
        "--allow-private",
        type=read_network,
        action="append",
        default=[],
        metavar="NETWORK",
        help="a network of private addresses that may be dialled",
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="further authorities to believe")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
