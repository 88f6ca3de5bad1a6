"""Who may ask the broker for what: tickets, attaching, and the users at the other end."""

import json
import os
import socket
import struct
import threading

import pytest

from sandbox.egress import control
from sandbox.egress.broker import Users
from sandbox.egress.rules.egress_policy import EgressPolicy, EgressSummary, HostRule
from sandbox.egress.ticket_client import EgressClient, attach, connect
from sandbox.errors import ErrorCode, RunRefused, SpecInvalid
from sandbox.inside.frames import FrameReader
from tests.sandbox.egress.conftest import placed, python


@pytest.fixture
def doors():
    """A run's end and the broker's end of the helper's door."""
    near, far = socket.socketpair()
    with near, far:
        yield near, far


def refusal(path, name, **doors):
    with pytest.raises(RunRefused) as caught:
        attach(path, name, **doors)
    assert caught.value.code == ErrorCode.EGRESS_UNAVAILABLE
    return str(caught.value)


def test_a_ticket_has_a_random_name_and_counts_nothing_unused(place):
    with (
        place.client.open(EgressPolicy(), "acme") as first,
        place.client.open(EgressPolicy(), "acme") as second,
    ):
        assert len({first.name, second.name}) == 2
        assert len(bytes.fromhex(first.name)) == 16
        assert first.close() == first.close() == EgressSummary()


def test_connections_are_kept_and_used_again(place):
    for _ in range(3):
        place.client.open(EgressPolicy(), "acme").close()
    assert len(place.client._idle) == 1


def test_tickets_of_many_threads_do_not_mix(place):
    names = []

    def work():
        for _ in range(20):
            with place.client.open(EgressPolicy(), "acme") as ticket:
                names.append(ticket.name)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 160


FORK = """
import os, sys
from sandbox.egress.ticket_client import EgressClient
from sandbox.egress.rules.egress_policy import EgressPolicy
client = EgressClient(sys.argv[1])
client.open(EgressPolicy(), "acme").close()
child = os.fork()
with client.open(EgressPolicy(), "acme") as ticket:
    own = ticket._line.pid == os.getpid()
print(own, os.waitpid(child, 0)[1] if child else "", flush=True)
os._exit(0)
"""


def test_a_child_does_not_use_its_parents_connections(place):
    done = python("-c", FORK, place.path)
    assert sorted(done.stdout.split()) == ["0", "True", "True"], done.stderr


def test_a_policy_that_cannot_be_meant_is_refused_and_the_next_one_is_not(place):
    with pytest.raises(SpecInvalid, match="not a host"):
        place.client.open(EgressPolicy((HostRule("a b"),)), "acme")
    place.client.open(EgressPolicy((HostRule("a.b"),)), "acme").close()


def test_a_broker_that_is_not_there_is_an_error_of_the_system(tmp_path, doors):
    path = str(tmp_path / "nobody")
    with pytest.raises(OSError):
        EgressClient(path).open(EgressPolicy(), "acme")
    assert "cannot be reached" in refusal(path, "x", helper=doors[1], proxy=None)


def test_a_ticket_attaches_once(place, doors):
    with place.client.open(EgressPolicy(), "acme") as ticket:
        with attach(place.path, ticket.name, helper=doors[1], proxy=None):
            assert "used before" in refusal(place.path, ticket.name, helper=doors[1], proxy=None)
        assert "used before" in refusal(place.path, ticket.name, helper=doors[1], proxy=None)


def test_an_unknown_or_closed_ticket_attaches_nothing(place, doors):
    ticket = place.client.open(EgressPolicy(), "acme")
    ticket.close()
    for name in (ticket.name, "", "0" * 32):
        assert "no such ticket" in refusal(place.path, name, helper=doors[1], proxy=None)


def test_a_descriptor_that_is_no_door_is_refused(place, doors):
    datagrams, other = socket.socketpair(type=socket.SOCK_DGRAM)
    everywhere, silent = socket.create_server(("0.0.0.0", 0)), socket.socket()
    unfit = [(datagrams, None), (everywhere, None), (doors[1], silent), (doors[1], everywhere)]
    with datagrams, other, everywhere, silent, place.client.open(EgressPolicy(), "acme") as ticket:
        for helper, proxy in unfit:
            assert "door" in refusal(place.path, ticket.name, helper=helper, proxy=proxy)
        attach(place.path, ticket.name, helper=doors[1], proxy=None).close()


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"type": "shutdown"},
        {"type": "close"},
        {"type": "open"},
        {"type": "open", "policy": []},
        {"type": "open", "policy": {"rules": [], "limits": {}}},
        {"type": "open", "policy": {"rules": [], "limits": {}, "more": 1}},
        {"type": "attach", "ticket": 7},
        {"type": "attach", "ticket": "x"},
    ],
)
def test_an_odd_question_is_answered_and_the_connection_stays(place, message):
    with connect(place.path) as channel:
        reader = FrameReader(channel, control.FRAME_CAP)
        for _ in range(2):
            channel.sendall(control.encode(message))
            assert set(json.loads(reader.read())) == {"refused"}


@pytest.mark.parametrize(
    "raw",
    [struct.pack(">I", 1 << 30), b"\xff" * 100, struct.pack(">I", 3) + b"nul"],
)
def test_malformed_bytes_do_not_stop_the_broker(place, raw):
    with connect(place.path) as channel:
        channel.sendall(raw)
        channel.shutdown(socket.SHUT_WR)
        while channel.recv(4096):
            continue
    place.client.open(EgressPolicy(), "acme").close()


KNOCK = """
import os, socket, sys
os.setgroups([]); os.setresgid(64399, 64399, 64399); os.setresuid(64399, 64399, 64399)
channel = socket.socket(socket.AF_UNIX); channel.connect(sys.argv[1])
print(channel.recv(1))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_another_user_is_turned_away(place, capfd):
    os.chmod(os.path.dirname(place.path), 0o755)
    done = python("-c", KNOCK, place.path)
    assert done.stdout == "b''\n", done.stderr
    assert '"peer_refused", "uid": 64399' in capfd.readouterr().err


@pytest.mark.parametrize(("worker", "attaches"), [(True, False), (False, True)])
def test_a_worker_may_not_attach_nor_sandboxd_open(worker, attaches):
    """The broker's configuration decides as which user this process connects."""
    me, other = os.getuid(), os.getuid() + 1
    users = Users(frozenset({me}), other) if worker else Users(frozenset({other}), me)
    with placed(users=users) as place, connect(place.path) as channel:
        reader = FrameReader(channel, control.FRAME_CAP)
        wanted = {"type": "open", "policy": EgressPolicy().to_wire(), "organization": "acme"}
        channel.sendall(control.encode(wanted))
        opened = "ticket" in json.loads(reader.read())
        channel.sendall(control.encode({"type": "attach", "ticket": "x"}))
        reason = json.loads(reader.read())["refused"]
    assert opened is worker
    assert (reason == "there is no such ticket") is attaches
