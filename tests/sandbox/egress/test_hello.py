"""The first words of TLS: real ones of OpenSSL's, and what can be made of them."""

import random
import ssl
import struct
import time
from functools import partial

import pytest

from sandbox.egress.entry_points import tunnel
from sandbox.egress.rules.grammar import parse_host

HOST = parse_host("good.example")
ECH, GREASE = 0xFE0D, 0x0A0A


def spoken(name: str | None) -> bytes:
    """The ClientHello record of a client that wants to speak with this name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = name is not None
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def extension(kind: int, content: bytes) -> bytes:
    return struct.pack(">HH", kind, len(content)) + content


def server_name(*names: bytes, kind: int = 0) -> bytes:
    listed = b"".join(struct.pack(">BH", kind, len(name)) + name for name in names)
    return extension(0, struct.pack(">H", len(listed)) + listed)


def client_hello(*extensions: bytes, behind: bytes = b"") -> bytes:
    """A minimal ClientHello record with these extensions."""
    listed = b"".join(extensions)
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0"
    body += struct.pack(">H", len(listed)) + listed
    message = b"\x01" + len(body).to_bytes(3) + body + behind
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def test_a_client_that_means_the_host_passes():
    for record in (
        spoken("good.example"),
        spoken("GOOD.example"),
        client_hello(server_name(b"good.example")),
    ):
        tunnel.check(record, HOST)
        assert tunnel.record_bytes(record) == len(record)


def test_a_client_that_connects_to_an_address_sends_no_server_name():
    address = parse_host("1.1.1.1")
    tunnel.check(spoken(None), address)
    with pytest.raises(tunnel.BadHello):
        tunnel.check(spoken("good.example"), address)


@pytest.mark.parametrize(
    ("read", "record"),
    [
        *((tunnel.record_bytes, start) for start in (
            b"GET /", b"\x16\x02\0\0\x05", b"\x16\x03\x01\0\0", b"\x16\x03\x01\x40\x01", b"SSH-2",
            b"\x80.....",
        )),
        *((partial(tunnel.check, host=HOST), record) for record in (
            client_hello(server_name(b"evil.example")),
            client_hello(server_name(b"sub.good.example")),
            client_hello(server_name(b"good.example.")),
            client_hello(server_name(b"good.example\0.evil.example")),
            client_hello(server_name(b"good.example\xff")),
            client_hello(server_name(b"")),
            client_hello(server_name()),
            client_hello(),
            client_hello(server_name(b"good.example", b"evil.example")),
            client_hello(server_name(b"good.example"), server_name(b"evil.example")),
            client_hello(server_name(b"good.example"), server_name(b"good.example")),
            client_hello(server_name(b"good.example", kind=1)),
            client_hello(extension(0, b"\0\x0f\0\0\x0cgood.exampleX")),
            client_hello(server_name(b"good.example"), extension(ECH, b"\0" * 40)),
            client_hello(server_name(b"good.example"), extension(0xFFCE, b"")),
            client_hello(
                server_name(b"good.example"), extension(GREASE, b""), extension(GREASE, b"")
            ),
            client_hello(server_name(b"good.example"), behind=b"\x01\0\0\0"),
            client_hello(server_name(b"good.example"))[:-1],
            b"\x17" + client_hello(server_name(b"good.example"))[1:],
            b"\x16\x03\x01\0\x04\x02\0\0\0",
        )),
    ],
)  # fmt: skip
def test_what_is_not_tls_or_may_name_another_server_is_refused(read, record):
    with pytest.raises(tunnel.BadHello):
        read(record)


def test_a_server_that_wants_a_second_hello_is_recognised():
    retry = b"\x16\x03\x03\0\x58\x02\0\0\x54\x03\x03" + tunnel._RETRY_RANDOM
    assert tunnel.is_retry(retry)
    assert not tunnel.is_retry(retry[:-1])
    assert not tunnel.is_retry(retry[:-1] + b"\0")
    assert not tunnel.is_retry(b"\x15\x03\x03\0\x02\x02\x28")
    assert not tunnel.is_retry(b"")


def test_a_hello_that_was_tampered_with_names_the_host_or_is_refused():
    """Never an error of another kind, and never a pass without the name in its bytes."""
    chance = random.Random(20261122)
    seeds = [
        spoken("good.example"),
        spoken("evil.example"),
        client_hello(server_name(b"good.example")),
    ]
    until, passed = time.monotonic() + 1, 0
    while time.monotonic() < until:
        record = bytearray(chance.choice(seeds))
        for _ in range(chance.randrange(4)):
            record[chance.randrange(len(record))] = chance.randrange(256)
        del record[chance.choice([len(record), chance.randint(5, len(record))]) :]
        try:
            tunnel.check(bytes(record), HOST)
        except tunnel.BadHello:
            continue
        passed += 1
        assert b"good.example" in record.lower()
    assert passed > 100
