"""Pages and tools by name: those that the person may open."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests import factories
from tests.ui.pages import htmx, notes, text
from tools.models import Organization


@pytest.fixture
def browser(organization: Organization) -> Callable[..., Client]:
    def logged_in(*permissions: str) -> Client:
        person, client = factories.person(organization), Client()
        factories.permit(person, *permissions)
        client.force_login(person, backend="tools.accounts.login.login.PeopleBackend")
        return client

    return logged_in


def search(client: Client, q: str) -> str:
    return text(client.get("/search/", {"q": q}, headers=htmx("goals")))


def test_pages_are_those_of_the_menu(browser: Callable[..., Client]) -> None:
    assert 'href="/workflow/"' not in search(browser(), "")
    seen = search(browser("view_tool"), "")
    assert (
        'href="/workflow/"' in seen and 'href="/executions/"' in seen and 'href="/profile/"' in seen
    )


@pytest.mark.parametrize("q", ["exec", "EXEC", " executions ", "e"])
def test_beginnings_of_words_find_a_page(admin_client: Client, q: str) -> None:
    assert 'href="/executions/"' in search(admin_client, q)


def test_other_pages_are_left_out(admin_client: Client) -> None:
    assert 'href="/home/"' not in search(admin_client, "exec")


def test_tools_are_found_by_name(admin_client: Client) -> None:
    assert 'href="/tools/read_file/"' in search(admin_client, "read_file")


def test_a_tool_that_a_person_may_not_see_is_not_found(
    organization: Organization, browser: Callable[..., Client]
) -> None:
    factories.tool(organization, "sesame", group=["hidden"])
    assert "/tools/sesame/" not in search(browser(), "sesame")
    assert "/tools/sesame/" in search(browser("view_tool"), "sesame")


def test_tools_of_others_are_not_found(admin_client: Client) -> None:
    factories.tool(factories.organization("elsewhere"), "sesame")
    assert "/tools/sesame/" not in search(admin_client, "sesame")


def test_nothing_found_says_what_to_do(admin_client: Client) -> None:
    assert "nothing-found" in notes(search(admin_client, "zzzz"))


@pytest.mark.parametrize("q", ["%", "_", "a" * 10_000, "'\"<>&", "()|&!:*"])
def test_whatever_is_asked_is_answered(admin_client: Client, q: str) -> None:
    assert admin_client.get("/search/", {"q": q}).status_code == 200


def test_it_works_as_a_page_too(admin_client: Client) -> None:
    page = text(admin_client.get("/search/?q=read_file"))
    assert "<h1" in page and 'href="/tools/read_file/"' in page


def test_the_number_of_queries_is_bounded(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    admin_client.get("/search/?q=read")
    with django_assert_max_num_queries(16):
        admin_client.get("/search/?q=read")
