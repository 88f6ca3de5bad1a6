"""When a run ends, its connections end with it, whatever the reason."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from sandbox.egress.rules.egress_policy import EgressPolicy
from sandbox.egress.ticket_client import attach
from sandbox.inside import sandbox_http
from tests.crib import CHECKOUT
from tests.sandbox.egress.conftest import NAME
from tests.stubs.web import endless


@pytest.fixture
def in_use(place, web, rule):
    """A run in the middle of an answer that has no end, through both entry points."""
    web.replies["/"] = endless()
    url = web.url(host=NAME)
    ended = []

    def fetch():
        try:
            sandbox_http.get(url, max_bytes=1 << 40)
        except sandbox_http.EgressError as error:
            ended.append(error.code)

    with place.run(rule(web), response_bytes=1 << 40) as visit, visit.knock() as program:
        helper = threading.Thread(target=fetch)
        helper.start()
        program.sendall(f"GET {url} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        program.recv(1)
        web.received()
        web.received()
        yield visit, program, helper, ended


def assert_all_over(web, program, helper, ended):
    web.lost()
    web.lost()
    while True:
        try:
            if not program.recv(1 << 20):
                break
        except ConnectionResetError:
            break
    helper.join(10)
    assert ended == ["EGRESS_UNAVAILABLE"]


def test_the_end_of_the_lifeline_ends_everything_and_the_count_is_kept(in_use, web):
    visit, *others = in_use
    visit.lifeline.close()
    assert_all_over(web, *others)
    tally = visit.tally()
    assert (tally.requests, tally.refused) == (2, 0)
    assert all(one.bytes_sent > 0 and one.address for one in tally.attempts)


def test_closing_the_ticket_ends_everything(in_use, web):
    visit, *others = in_use
    assert visit.tally().requests == 2
    assert_all_over(web, *others)


def test_the_end_of_the_workers_connection_ends_everything(in_use, web):
    visit, *others = in_use
    visit.ticket._line.close()
    assert_all_over(web, *others)
    with pytest.raises(OSError):
        visit.ticket.close()
    visit.ticket._tally = "given up"


WORKER = """
import sys
from sandbox.egress.ticket_client import EgressClient
from sandbox.egress.rules.egress_policy import EgressPolicy
ticket = EgressClient(sys.argv[1]).open(EgressPolicy(), "acme")
print(ticket.name, flush=True)
sys.stdin.read()
"""


def test_a_killed_worker_takes_its_ticket_along(place):
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, place.path],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    near, far = socket.socketpair()
    with worker, near, far:
        name = worker.stdout.readline().strip()
        lifeline = attach(place.path, name, helper=far, proxy=None)
        far.close()
        os.kill(worker.pid, signal.SIGKILL)
        with lifeline:
            assert near.recv(1) == b""


def test_a_run_that_closes_its_own_door_still_has_its_ticket(place):
    near, far = socket.socketpair()
    with place.client.open(EgressPolicy(), "acme") as ticket, near, far:
        with attach(place.path, ticket.name, helper=far, proxy=None):
            near.close()
        assert ticket.close().requests == 0
