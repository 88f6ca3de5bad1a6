"""A part of a page is never replaced by a whole page: a session that ended leads to the login and
back, and a refusal goes to where each page has room for it (review 1.7)."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from tests import factories
from tests.tools.api.test_authorization_matrix import Side
from tests.ui.addresses import addresses_of
from tests.ui.pages import htmx
from tools.models import Organization
from tools.ui.audit.urls import urlpatterns as audit_addresses
from tools.ui.urls import urlpatterns as page_addresses

ABSENT: dict[str, Any] = {
    "uuid": UUID(int=7),
    "int": 987_654_321,
    "str": "absent",
    "path": "absent",
}
# Without a session, and what a visitor does before there is one.
FOR_VISITORS = {
    "login", "logout", "second-factor", "single-sign-on", "single-sign-on-callback",
    "single-sign-on-back",
}  # fmt: skip


def addresses() -> Iterator[tuple[str, URLPattern]]:
    for pattern in (*page_addresses, *audit_addresses):
        if isinstance(pattern, URLPattern) and pattern.name and pattern.name not in FOR_VISITORS:
            converters = pattern.pattern.converters
            kinds = {
                name: type(one).__name__.removesuffix("Converter").lower()
                for name, one in converters.items()
            }
            absent = {name: ABSENT.get(kind.removeprefix("string") or "str", "absent")
                      for name, kind in kinds.items()}  # fmt: skip
            yield reverse(pattern.name, kwargs=absent), pattern


ADDRESSES = dict(addresses())
METHODS = ("get", "post")
# No part asks for these: each answers a refusal with a page of its own.
WHOLE_PAGES = {
    "/login/again/", "/profile/password/", "/profile/tokens", "/profile/factors/key/",
    "/oauth/callback/", "/workspace/", "/workspace/file/", "/workspace/download/",
}  # fmt: skip


def ask(client: Client, method: str, address: str) -> Any:
    return getattr(client, method)(
        address, headers=htmx("part") | {"HX-Current-URL": "http://testserver/home/"}
    )


def led(answer: Any) -> bool:
    """To the login, or to the notice; 405 is what no part asks for."""
    good = answer.status_code < 400 or answer.status_code == 405
    return good or "HX-Redirect" in answer or answer.get("HX-Retarget") == "#notice"


@pytest.mark.parametrize("method", METHODS)
def test_a_session_that_ended_leads_to_the_login_and_back(
    client: Client, db: None, method: str
) -> None:
    wrong = []
    for address in ADDRESSES:
        answer = ask(client, method, address)
        back = answer.get("HX-Redirect", "")
        if answer.status_code != 405 and not back.startswith("/login/?next=/home/"):
            wrong.append((address, answer.status_code))
    assert wrong == [], wrong


@pytest.mark.parametrize("method", METHODS)
def test_a_refusal_goes_to_the_notice(
    client_of: Any, organization: Organization, method: str
) -> None:
    client = client_of()
    wrong = []
    for address in ADDRESSES:
        answer = ask(client, method, address)
        if address not in WHOLE_PAGES and not led(answer):
            wrong.append((address, answer.status_code))
    assert wrong == [], wrong


@pytest.mark.parametrize("method", METHODS)
def test_what_is_absent_goes_to_the_notice(admin_client: Client, method: str) -> None:
    wrong, absent = [], 0
    for address, pattern in ADDRESSES.items():
        if not pattern.pattern.converters:
            continue
        answer = ask(admin_client, method, address)
        absent += answer.status_code == 404
        if address not in WHOLE_PAGES and not led(answer):
            wrong.append((address, answer.status_code))
    assert wrong == [] and absent > 10


@pytest.fixture
def shown_pages(organization: Organization) -> dict[str, str]:
    """Each page with what it shows, and what is asked of it; nothing of the Django admin or of
    probes is a part."""
    side = Side(organization, "axe")
    found = addresses_of(side, tool=side.tool.name, agent=side.agent.slug)
    return {name: one for name, one in found.items() if not one.startswith(("/admin/", "/readyz"))}


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("visitor", ["anonymous", "no permission"])
def test_each_page_that_shows_something_leads_there_too(
    shown_pages: dict[str, str], client: Client, client_of: Any, visitor: str
) -> None:
    client = client if visitor == "anonymous" else client_of()
    wrong = {}
    for name, address in shown_pages.items():
        answer = ask(client, "get", address)
        left = visitor == "anonymous" and "HX-Redirect" not in answer
        if left or not (led(answer) or address.partition("?")[0] in WHOLE_PAGES):
            wrong[name] = answer.status_code
    assert wrong == {}


def test_an_unknown_address_goes_to_the_notice_too(admin_client: Client) -> None:
    answer = ask(admin_client, "get", "/nowhere/")
    assert answer.status_code == 404 and led(answer)


def test_head_is_answered_wherever_get_is(admin_client: Client, organization: Organization) -> None:
    """Review 1.19."""
    factories.agent(organization)
    wrong = []
    for address, pattern in ADDRESSES.items():
        if pattern.pattern.converters or address.startswith("/workspace/"):  # the sandbox
            continue
        got, headed = admin_client.get(address), admin_client.head(address)
        if got.status_code != headed.status_code:
            wrong.append((address, got.status_code, headed.status_code))
    assert wrong == [], wrong
