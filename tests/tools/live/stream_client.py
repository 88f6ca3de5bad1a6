"""A server-sent event stream of the running crib, read over a socket as a browser would."""

import http.client
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from django.conf import settings
from django.test import Client

from tests import crib as cribs
from tools.models import User

BACKEND = "tools.accounts.login.login.PeopleBackend"


def logged_in(user: User) -> str:
    """The key of a committed browser session."""
    client = Client()
    client.force_login(user, backend=BACKEND)
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


def cookie(key: str) -> dict[str, str]:
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={key}"}


def place(crib: cribs.Crib, key: str) -> str:
    """The URL of the stream in the page."""
    web = http.client.HTTPConnection(urlsplit(crib.url).netloc, timeout=10)
    web.request("GET", "/inbox/", headers=cookie(key))
    answer = web.getresponse()
    found = re.search(r'data-live-at="([^"]+)"', answer.read().decode())
    policy = str(answer.headers["Content-Security-Policy"])
    web.close()
    assert found and "://".join(urlsplit(found[1])[:2]) in policy
    return found[1]


class Reading:
    def __init__(self, netloc: str, path: str, headers: dict[str, str]) -> None:
        self.connection = http.client.HTTPConnection(netloc, timeout=40)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def events(self) -> Iterator[str]:
        """The names of the events, until the stream ends."""
        while line := self.answer.fp.readline():
            if line.startswith(b"event: "):
                yield line[7:].decode().strip()

    def hears_within(self, seconds: float) -> bool:
        assert self.connection.sock
        self.connection.sock.settimeout(seconds)
        try:
            return next(self.events(), "") == "changed"
        except TimeoutError:
            return False

    def ends_within(self, seconds: float) -> bool:
        assert self.connection.sock
        self.connection.sock.settimeout(seconds)
        deadline = time.monotonic() + seconds
        try:
            while self.answer.fp.readline() and time.monotonic() < deadline:
                pass
        except TimeoutError:
            return False
        return time.monotonic() < deadline


@contextmanager
def reading(
    crib: cribs.Crib, user: User, *topics: object, key: str = "", **headers: str
) -> Iterator[Reading]:
    key = key or logged_in(user)
    found = urlsplit(place(crib, key))
    query = "&".join(f"of={topic}" for topic in topics)
    given = cookie(key) | {"Origin": crib.url} | headers
    one = Reading(found.netloc, f"{found.path}?{query}", given)
    try:
        yield one
    finally:
        one.connection.close()
