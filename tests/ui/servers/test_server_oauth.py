"""Connecting an MCP server by OAuth from its page, and coming back."""

from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from tests.stubs.identity_provider import Guarded, consented, guarded_serving
from tests.ui.pages import inline_code, notes, text
from tests.ui.sources import server
from tools.catalog.mcp.upstreams import client_pool
from tools.models import McpAuthorization, McpOAuthClient, McpServer, Organization

pytestmark = pytest.mark.usefixtures("loopback_is_open")
FAR = "/servers/far/"


@pytest.fixture
def stub() -> Iterator[Guarded]:
    with guarded_serving() as made:
        yield made


@pytest.fixture
def far(organization: Organization, stub: Guarded) -> Iterator[str]:
    server(organization, "far", stub.mcp.url)
    yield FAR
    row = McpServer.objects.get(organization=organization, name="far")
    client_pool().forget_server(str(row.pk))


def asked_at(client: Client, far: str) -> str:
    """Where the page sends a browser that is to consent."""
    page = client.post(f"{far}connect", {"owner": ""}, headers={"host": "localhost"})
    assert page.status_code == 200 and inline_code(page) == []
    return unescape(text(page).split('class="button primary" href="')[1].split('"')[0])


def back(client: Client, url: str) -> Any:
    place = urlsplit(consented(url))
    assert (place.netloc, place.path) == ("localhost", "/oauth/callback/")
    return client.get(f"{place.path}?{place.query}", follow=True, headers={"host": "localhost"})


def test_a_person_is_shown_where_to_and_comes_back_connected(
    admin_client: Client, organization: Organization, far: str, stub: Guarded
) -> None:
    assert "not-connected" in notes(admin_client.get(far))
    url = asked_at(admin_client, far)
    assert url.startswith(stub.oauth.web.url("/authorize?"))
    page = text(back(admin_client, url))
    assert "far" in notes(page)["message-success"][0] and "not-connected" not in notes(page)
    assert stub.oauth.issuer in page and "access-" not in page
    listed = notes(admin_client.post(f"{far}refresh", follow=True))
    assert "far" in listed["message-success"][0] and "1" in listed["message-success"][0]
    gone = notes(admin_client.post(f"{far}disconnect", {"owner": ""}, follow=True))
    assert "far" in gone["message-success"][0] and "not-connected" in gone
    assert not McpAuthorization.objects.filter(server__organization=organization).exists()


def test_a_callback_that_is_repeated_or_of_another_user_connects_nothing(
    admin_client: Client, client: Client, far: str
) -> None:
    url = asked_at(admin_client, far)
    place = urlsplit(consented(url))
    stranger = client.get(f"{place.path}?{place.query}")
    assert stranger.status_code == 302 and stranger["Location"].startswith("/login/")
    back(admin_client, url)
    again = admin_client.get(f"{place.path}?{place.query}")
    assert again.status_code == 400 and "not-connected" in notes(again)


@pytest.mark.parametrize("query", ["", "?state=x&error=%3Cscript%3E", "?code=1"])
def test_an_odd_way_back_is_said_and_keeps_nothing(admin_client: Client, query: str) -> None:
    page = admin_client.get(f"/oauth/callback/{query}")
    assert page.status_code == 400 and "<script>" not in text(page).split("<main")[-1]
    assert "not-connected" in notes(page)


def test_a_client_is_entered_changed_and_removed(
    admin_client: Client, organization: Organization, far: str
) -> None:
    own = McpOAuthClient.objects.filter(server__organization=organization)
    given = {"client_id": "me", "client_secret": "canary", "grant": "authorization_code"}
    answer = admin_client.post(f"{far}client/", given, follow=True)
    assert "message-success" in notes(answer)
    form = text(admin_client.get(f"{far}client/"))
    assert 'value="me"' in form and "canary" not in form
    admin_client.post(f"{far}client/", given | {"client_id": "you", "client_secret": ""})
    kept = own.get()
    assert kept.client_id == "you" and kept.sealed
    wrong = admin_client.post(f"{far}client/", {"client_id": "", "grant": "x"})
    assert wrong.status_code == 400 and "flaw-client_id" in notes(wrong)
    admin_client.post(f"{far}client/", {"do": "remove"})
    assert not own.exists()


def test_what_cannot_be_connected_is_said_on_the_page(
    admin_client: Client, far: str, stub: Guarded
) -> None:
    stub.oauth.web.replies.clear()
    page = notes(admin_client.post(f"{far}connect", {"owner": ""}, follow=True))
    assert "far" in page["message-error"][0] and "not-connected" in page
