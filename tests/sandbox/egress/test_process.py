"""The broker as a process of its own, as the supervisor starts it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy, HostRule
from sandbox.egress.ticket_client import EgressClient, attach
from sandbox.inside import sandbox_http
from tests.conditions import until
from tests.crib import CHECKOUT
from tests.sandbox.egress.conftest import python, refused
from tests.stubs.web import Reply, serving

ME = ("--worker-uid", str(os.getuid()), "--sandbox-uid", str(os.getuid()))
NOWHERE = ("--socket", "/nowhere/s", *ME)
LOOPBACK = ("--allow-private", "127.0.0.0/8")


class Process:
    def __init__(self, path: str, *options: str) -> None:
        self.path = path
        words = [sys.executable, "-m", "sandbox.egress", "--socket", path, *ME, *options]
        self.process = subprocess.Popen(
            words, cwd=CHECKOUT, env={}, stderr=subprocess.PIPE, text=True
        )
        first = self.process.stderr.readline()
        self.ready = json.loads(first) if first.startswith("{") else {"event": first}
        self.client = EgressClient(path)

    def stop(self) -> tuple[int, list[dict]]:
        """The exit status and what it logged since it was ready."""
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        with self.process.stderr as stderr:
            lines = [json.loads(line) for line in stderr]
        return self.process.wait(10), lines

    def status(self, name: str) -> int:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+)", text)[1])

    def processor_time(self) -> list[str]:
        return Path(f"/proc/{self.process.pid}/stat").read_text().split()[13:15]

    def sleeps_without_a_timer(self) -> bool:
        """The fourth argument of epoll_wait is the timeout, -1 as the kernel prints it."""
        words = Path(f"/proc/{self.process.pid}/syscall").read_text().split()
        return len(words) > 4 and words[4] in {"0xffffffff", "0xffffffffffffffff"}

    @contextmanager
    def run(self, *rules, **limits):
        near, far = socket.socketpair()
        policy = EgressPolicy(rules, EgressLimits(**limits))
        with ExitStack() as held:
            ticket = held.enter_context(self.client.open(policy, "acme"))
            held.enter_context(attach(self.path, ticket.name, helper=far, proxy=None))
            far.close()
            sandbox_http.open_door(held.enter_context(near).fileno())
            held.callback(sandbox_http._door._channel.detach)
            yield ticket


@pytest.fixture
def start():
    started = []
    with tempfile.TemporaryDirectory(prefix="tc") as directory:

        def starting(*options):
            started.append(Process(f"{directory}/s", *options))
            return started[-1]

        yield starting
        for one in started:
            if one.process.poll() is None:
                one.stop()
            one.process.stderr.close()


def test_it_serves_and_stops_and_tells_only_numbers(start, secure_web, authority):
    broker = start(*LOOPBACK, "--ca", authority.file)
    secure_web.replies["/path"] = Reply(body=b"body")
    rule = HostRule("127.0.0.1", ports=(secure_web.port,), headers=(("X-Key", "credential"),))
    with broker.run(rule):
        answer = sandbox_http.get(secure_web.url("/path"), headers={"x-mine": "header"})
        refused("HOST_NOT_ALLOWED", "http://evil.example/path")
    status, lines = broker.stop()
    assert (answer.body, secure_web.seen[0].headers["x-key"]) == (b"body", "credential")
    assert [(one["event"], one["requests"], one["refused"]) for one in lines] == [("run", 2, 1)]
    assert (status, broker.ready["event"]) == (0, "ready")
    text = json.dumps(lines)
    assert not [word for word in ("path", "credential", "header", "evil", "body") if word in text]


def test_what_the_operator_did_not_open_stays_shut(start, web):
    broker = start("--allow-private", "10.0.0.0/8", "--allow-private", "fd00::/8")
    with broker.run(HostRule("127.0.0.1", ports=(web.port,)), HostRule("localhost")):
        refused("ADDRESS_NOT_ALLOWED", web.url())
        refused("ADDRESS_NOT_ALLOWED", "http://localhost/")
    assert web.connections == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may look at a process that hides itself")
def test_an_idle_broker_waits_for_events_without_end(start, web):
    """No timer: the kernel shows the call it sleeps in, and its timeout of -1."""
    broker = start(*LOOPBACK)
    with broker.run(HostRule("127.0.0.1", ports=(web.port,))):
        sandbox_http.get(web.url())
        until(broker.sleeps_without_a_timer)
    until(broker.sleeps_without_a_timer)


@pytest.mark.part("sandbox")
def test_a_large_answer_streams_through(start):
    """200 MB; what is read slowly inside is read slowly from the host."""
    piece = b"x" * 1_000_000

    def body():
        for _ in range(200):
            yield piece

    broker = start(*LOOPBACK)
    with (
        serving() as web,
        broker.run(HostRule("127.0.0.1", ports=(web.port,)), response_bytes=1 << 30),
    ):
        web.replies["/small"] = Reply()
        web.replies["/"] = lambda seen: Reply(body=body())
        sandbox_http.get(web.url("/small"))
        before = broker.status("VmHWM")
        received = sum(map(len, _pieces(web.url())))
        grown_kb = broker.status("VmHWM") - before
    assert received == 200_000_000
    assert grown_kb < 8 * 1024


def _pieces(url):
    """The body as it comes, without keeping it."""
    request = sandbox_http._Request("GET", url, {}, b"")
    with sandbox_http._door.conversation(request, time.monotonic() + 60) as talk:
        talk.head()
        yield from talk.pieces()


@pytest.mark.part("sandbox")
def test_an_answer_that_the_run_does_not_read_is_not_buffered(start, web):
    """A run that does not take its answer makes the host wait, not the broker grow."""
    gone = threading.Event()
    pieces = iter(lambda: b"" if gone.is_set() else b"x" * 1_000_000, b"")
    written = []

    def body():
        for piece in pieces:
            written.append(len(piece))
            yield piece

    broker = start(*LOOPBACK)
    web.replies["/"] = lambda seen: Reply(body=body())
    with broker.run(HostRule("127.0.0.1", ports=(web.port,)), response_bytes=1 << 40) as ticket:
        request = sandbox_http._Request("GET", web.url(), {}, b"")
        with sandbox_http._door.conversation(request, time.monotonic() + 60) as talk:
            talk.head()
            until(Still(lambda: (len(written), broker.processor_time())))
            ticket.close()
    web.lost()
    gone.set()
    assert sum(written) < 30_000_000


class Still:
    """True when something has been the same for a second of looks."""

    def __init__(self, look) -> None:
        self._look, self._last, self._times = look, None, 0

    def __call__(self) -> bool:
        now = self._look()
        self._times = self._times + 1 if now == self._last else 0
        self._last = now
        return self._times >= 50


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--allow-private", "10.0.0.1/8"), 2, "--allow-private"),
        (("--allow-private", "0.0.0.0/0"), 2, "--allow-private"),
        (("--allow-private", "intranet"), 2, "--allow-private"),
        (("--ca", "/nowhere/ca.pem"), 1, "^the certificates cannot be read: "),
    ],
)
def test_what_cannot_be_meant_stops_the_start(words, code, message):
    done = python("-m", "sandbox.egress", *NOWHERE, *words)
    assert done.returncode == code
    assert re.search(message, done.stderr)


def test_a_second_broker_does_not_take_the_first_ones_place(start):
    first = start()
    second = start()
    assert second.ready["event"].startswith("no socket can be made: another broker listens")
    first.client.open(EgressPolicy(), "acme").close()


def test_a_killed_broker_leaves_a_socket_the_next_one_replaces(start):
    first = start()
    with first.client.open(EgressPolicy(), "acme") as ticket:
        first.process.kill()
        first.process.wait()
        with pytest.raises(OSError):
            ticket.close()
        ticket._tally = "given up"
    second = start()
    first.client.open(EgressPolicy(), "acme").close()
    second.client.open(EgressPolicy(), "acme").close()
