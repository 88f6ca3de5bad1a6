"""Names that do not resolve block only the DNS lookups of the organization that configured them."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from audit.alerts.alert_channels import DeliveryFailed
from sandbox.egress.rules.grammar import Url
from tests.conditions import until
from tools.catalog.mcp import mcp_transports
from tools.httpclient import outbound
from tools.mcpclient.errors import UpstreamFailure
from tools.mcpclient.http_transports import StreamableHttpTransport
from tools.messaging import smtp

HEADERS = [("content-type", "application/json")]
PER_ORGANIZATION = 8
LETTER = smtp.MailMessage("1", ["ada@a.example"], "s", "b")


def webhook(name: str, organization: str) -> None:
    outbound.post(f"https://{name}/", HEADERS, b"{}", 30, organization)


def mail(name: str, organization: str) -> None:
    options = {"host": name, "port": 25, "security": "tls"}
    smtp.send_mail(options, "", LETTER, 30, organization)


def authorization(name: str, organization: str) -> None:
    fetch = mcp_transports.fetcher(organization)
    mcp_transports.wait_for(fetch("GET", f"https://{name}/", [], b""), 30)


def mcp(name: str, organization: str) -> None:
    channel = StreamableHttpTransport(
        Url.parse(f"https://{name}/"), [], mcp_transports.dialer("https", organization)
    )

    async def reach() -> None:
        async with channel._origin.exchange("GET", "/", []):
            pass

    mcp_transports.wait_for(reach(), 30)


class Names:
    """A DNS server that answers nothing until it is released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Event()

    def __call__(self, name: bytes, *_: Any, **__: Any) -> list[Any]:
        self.asked.append(name.decode())
        self.go.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "There is no answer.")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    found = Names()
    mcp_transports._dialer.cache_clear(), outbound._dialer.cache_clear()
    mcp_transports.dialer("https", "")  # created here, so that two threads do not both create it
    monkeypatch.setattr(socket, "getaddrinfo", found)
    yield found
    found.go.set()
    mcp_transports._dialer.cache_clear(), outbound._dialer.cache_clear()


@pytest.mark.parametrize("reach", [webhook, mail, authorization, mcp])
def test_lookups_of_dead_names_leave_places_for_another_organization(
    names: Names, reach: Callable[[str, str], None]
) -> None:
    def quietly(name: str, organization: str) -> None:
        with suppress(DeliveryFailed, UpstreamFailure, TimeoutError):
            reach(name, organization)

    with ThreadPoolExecutor(30) as clients:
        for number in range(20):
            clients.submit(quietly, f"n{number}.dead.example", "loud")
        until(lambda: len(names.asked) >= PER_ORGANIZATION)
        clients.submit(quietly, "other.example", "quiet")
        until(lambda: "other.example" in names.asked)
        asked = sum(name.endswith("dead.example") for name in names.asked)
        names.go.set()
    assert asked == PER_ORGANIZATION
