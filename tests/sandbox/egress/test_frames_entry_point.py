"""What a run can do to the broker with the bare socket: speak in frames of its own making."""

import json
import random
import socket
import struct
import time
from collections import deque
from contextlib import contextmanager

import pytest

from sandbox.egress.entry_points.frames_entry_point import BrokenRule, FrameParser, read_request
from sandbox.egress.rules.egress_policy import EgressLimits, EgressPolicy
from sandbox.egress.ticket_client import attach
from sandbox.inside.sandbox_http import FRAME_CAP, Frame, FrameKind, pack, unpack
from tests.sandbox.egress.conftest import NAME
from tests.stubs.web import Held, Reply

GOOD = {"method": "GET", "url": f"http://{NAME}/", "headers": [], "length": 0, "timeout_s": 5}


def wish(number: int = 1, **changes) -> bytes:
    return pack(Frame(FrameKind.REQUEST, number, json.dumps(GOOD | changes).encode()))


@contextmanager
def bare_door(place, *rules, **limits):
    """The run's end of the door, and its ticket."""
    ticket = place.client.open(EgressPolicy(rules, EgressLimits(**limits)), "acme")
    near, far = socket.socketpair()
    near.settimeout(10)
    with ticket, near, attach(place.path, ticket.name, helper=far, proxy=None):
        far.close()
        yield near, ticket


def heard(near: socket.socket, count: int) -> list[Frame]:
    buffer, frames = bytearray(), []
    while len(frames) < count:
        received = near.recv(65536)
        assert received, "the door was closed"
        buffer += received
        while (frame := unpack(buffer)) is not None:
            frames.append(frame)
    return frames


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "raw",
    [
        bytes(9), b"\0\0\0\x04\x01\0\0\0\x01", b"\xff\xff\xff\xff\x01\0\0\0\x01",
        struct.pack(">IBI", FRAME_CAP + 1, 1, 1), struct.pack(">IBI", 5, 0, 1),
        struct.pack(">IBI", 5, 7, 1), struct.pack(">IBI", 5, 255, 1),
        pack(Frame(FrameKind.HEAD, 1, b"{}")), pack(Frame(FrameKind.END, 1, b"")),
        pack(Frame(FrameKind.REFUSED, 1, b"{}")), pack(Frame(FrameKind.BODY, 1, b"x")),
        pack(Frame(FrameKind.REQUEST, 0, json.dumps(GOOD).encode())),
        pack(Frame(FrameKind.REQUEST, 1, b"")), pack(Frame(FrameKind.REQUEST, 1, b"[" * 100_000)),
        pack(Frame(FrameKind.REQUEST, 1, b"\xff")), pack(Frame(FrameKind.REQUEST, 1, b"null")),
        wish(length=-1), wish(length=True), wish(length="1"), wish(length=1.0),
        wish(timeout_s=0), wish(timeout_s=-1), wish(timeout_s=float("nan")),
        wish(timeout_s=float("inf")), wish(headers={"a": "b"}), wish(headers=[["a"]]),
        wish(headers=[["a", 1]]), wish(url=None), wish(method=b"GET".hex(), more=1),
        wish(1) + wish(1), wish(2) + wish(1),
        wish(length=3) + pack(Frame(FrameKind.BODY, 1, b"four")),
        wish(length=3) + pack(Frame(FrameKind.BODY, 1, b"")),
        wish(length=3) + pack(Frame(FrameKind.BODY, 1, b"abc")) * 2,
        wish(length=3) + pack(Frame(FrameKind.BODY, 1, b"a")),
        wish(length=1 << 20) + pack(Frame(FrameKind.BODY, 1, b"a" * 1000)),
        wish(url="x" * 200_000),
        b"".join(pack(Frame(FrameKind.CANCEL, 1, b"")) for _ in range(1001)),
    ],
)  # fmt: skip
def test_a_frame_no_helper_sends_closes_the_door(place, raw):
    with bare_door(place) as (near, _):
        near.sendall(raw)
        while near.recv(65536):
            continue
    with bare_door(place) as (near, _):
        near.sendall(wish())
        assert heard(near, 1)[0].kind == FrameKind.REFUSED


def test_half_a_frame_waits_and_its_end_is_no_harm(place):
    with bare_door(place) as (near, ticket):
        near.sendall(wish()[:-1])
        near.close()
        assert ticket.close().requests == 0


def test_any_text_for_a_url_is_an_attempt(place):
    with bare_door(place) as (near, ticket):
        for number, url in enumerate(["", "\0", "http://\ud800/", "x" * 100_000], 1):
            near.sendall(wish(number, url=url))
            assert heard(near, 1)[0].kind == FrameKind.REFUSED
        tally = ticket.close()
    assert (tally.requests, tally.refused) == (4, 4)
    json.dumps([one.host for one in tally.attempts]).encode()


def test_a_cancelled_request_ends_at_the_host(place, web, rule):
    held = web.replies["/"] = Held(Reply(body=b"x" * 1_000_000))
    with bare_door(place, rule(web), connections=1) as (near, ticket):
        near.sendall(wish(1, url=web.url(host=NAME)))
        web.received()
        near.sendall(
            pack(Frame(FrameKind.CANCEL, 1, b"")) + wish(2, url=web.url("/next", host=NAME))
        )
        kinds = [(one.kind, one.number) for one in heard(near, 2)]
        held.let_go()
        tally = ticket.close()
    assert kinds == [(FrameKind.HEAD, 2), (FrameKind.END, 2)]
    assert (tally.requests, tally.refused) == (2, 0)


def test_a_missing_request_body_blocks_no_other_request(place, web, rule):
    with bare_door(place, rule(web)) as (near, _):
        near.sendall(wish(1, url=web.url(host=NAME), method="POST", length=10))
        near.sendall(wish(2, url=web.url(host=NAME)))
        assert {one.number for one in heard(near, 2)} == {2}


@pytest.mark.part("sandbox")
def test_a_run_that_reads_no_answers_is_not_read_from_for_ever(place):
    """What it asks for in vain fills the sockets, not the broker."""
    with bare_door(place, requests=1_000_000) as (near, ticket):
        near.settimeout(0.5)
        wishes = (wish(one, url="http://evil.example/" + "x" * 15_000) for one in range(1, 1 << 20))
        with pytest.raises(TimeoutError):
            deque(map(near.sendall, wishes), maxlen=0)
        assert ticket.close().requests < 5000


def test_the_parser_finds_the_same_frames_however_the_bytes_are_cut():
    chance = random.Random(20261122)
    until, rounds = time.monotonic() + 0.7, 0
    while time.monotonic() < until:
        frames = [
            Frame(chance.choice(list(FrameKind)), chance.randrange(1 << 32), chance.randbytes(size))
            for size in chance.choices([0, 1, 5, 300, 70_000], k=chance.randrange(6))
        ]
        raw, parser, found = b"".join(map(pack, frames)), FrameParser(), []
        while raw:
            cut = chance.choice([1, 4, 9, 1000, len(raw)])
            found += parser.feed(raw[:cut]) if len(raw) < 100_000 else parser.feed(raw)
            raw = raw[cut:] if len(raw) < 100_000 else b""
        assert found == frames
        rounds += 1
    assert rounds > 20


def test_rubbish_makes_frames_or_breaks_a_rule_and_nothing_else():
    chance = random.Random(20261123)
    until, broken = time.monotonic() + 0.7, 0
    while time.monotonic() < until:
        raw = bytearray(wish(chance.randrange(9)) * 3)
        for _ in range(chance.randrange(5)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        try:
            for frame in FrameParser().feed(bytes(raw)):
                assert pack(frame) in bytes(raw)
                read_request(frame.payload)
        except BrokenRule:
            broken += 1
    assert broken > 100
