"""What strangers may hold open at the web server, and what they are answered."""

import socket
from urllib.parse import urlsplit

import pytest

from config import server
from tests.journeys.client import Http


def opened(crib) -> socket.socket:
    place = urlsplit(crib.url)
    return socket.create_connection((place.hostname, place.port), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    """Waits for the server to close it."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_address_has_so_many_connections_and_not_one_more(crib):
    held = [opened(crib) for _ in range(server.ADDRESS_CONNECTIONS)]
    try:
        with opened(crib) as one_more:
            assert is_closed(one_more)
    finally:
        for connection in held:
            connection.close()


@pytest.mark.part("walks")
@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: loc"])
def test_a_request_whose_head_does_not_come_is_closed(crib, begun):
    with opened(crib) as connection:
        connection.sendall(begun)
        assert is_closed(connection)


@pytest.mark.part("walks")
def test_a_body_that_does_not_come_is_answered_408(crib):
    with opened(crib) as connection:
        head = b"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head + b"{")
        assert b" 408 " in connection.makefile("rb").readline()


def test_a_head_without_end_is_refused(crib):
    with opened(crib) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (server.HEAD_BYTES + 1))
        assert b" 400 " in connection.makefile("rb").readline()


def test_seventy_missing_bodies_block_no_other_request(crib):
    held = []
    try:
        for _ in range(70):
            held.append(opened(crib))
            held[-1].sendall(
                b"POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"
            )
        assert Http(crib.url)("GET", "/healthz").status_code == 200
        assert Http(crib.url)("GET", "/login/").status_code == 200
        refused = held[-1].makefile("rb").readline()
        assert b" 503 " in refused
    finally:
        for connection in held:
            connection.close()
