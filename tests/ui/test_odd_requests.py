"""Input that no user types reaches no page: NUL, half a character, very long text, other types."""

import copy
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.urls import reverse

from audit.log import sealer
from tests import factories
from tests.savepoints import read_catalogs, rolled_back
from tests.tools.api.test_authorization_matrix import PAGES, WORKSPACE, Side
from tests.ui.pages import notes

NUL, HALF, LONG = "a\x00b", b"\xed\xa0\x80", "x" * 100_000
ODD: dict[str, Any] = {
    "nul": NUL, "half a character": HALF, "long": LONG, "negative": "-1", "huge": "9" * 40,
    "a list": "[]", "no date": "2026-99-99T99:99", "no number": "1e999", "a path": "../../etc",
    "right to left": "\u202eabc", "an address": "//evil.example", "a word": "word", "nothing": "",
}  # fmt: skip
QUERY = (
    "q", "page", "next", "sort", "state", "status", "since", "until", "cursor", "page_size",
    "agent", "tool", "session", "code", "kind", "of", "by", "over", "part", "one", "group", "name",
    "transport", "type", "from", "to", "version", "format", "person", "organization", "kept",
)  # fmt: skip


@pytest.fixture(scope="module")
def side(django_db_setup: None, django_db_blocker: Any) -> Iterator[Side]:
    """An organization with one of everything, written once: each request is rolled back."""
    with django_db_blocker.unblock():
        made = Side(factories.organization(f"odd-{uuid4().hex[:12]}"), "odd")
        sealer.seal_logs(made.organization.slug)
        yield made
        connection.close()


@pytest.fixture(scope="module")
def pages(side: Side) -> dict[str, str]:
    found = {
        name: reverse(name, kwargs=side.place(name)) for name in PAGES if name not in WORKSPACE
    }
    read_catalogs(side.organization)
    return found


@pytest.fixture
def browser(side: Side, db: None, settings: Any) -> Client:
    """A superuser's; what goes wrong on our side is an answer here, and not raised."""
    settings.FRESH_SECONDS = 86_400
    client = Client(raise_request_exception=False)
    user = factories.superuser(side.organization)
    client.force_login(user, backend="tools.accounts.login.login.PeopleBackend")
    return client


def fields_of(page: Any) -> set[str]:
    found = re.findall(rb'\bname="([\w.-]+)"', b"" if page.streaming else page.content)
    return {name.decode() for name in found} - {"csrfmiddlewaretoken"}


def sent(browser: Client, method: str, path: str, data: dict[str, Any]) -> Any:
    """Whatever it changed is taken back; who logged out is back."""
    cookies = copy.deepcopy(browser.cookies)
    with rolled_back():
        answer = getattr(browser, method)(path, data)
    browser.cookies = cookies
    for close in answer._resource_closers if answer.streaming else ():
        close()
    return answer


_fields: dict[str, set[str]] = {}


def fields_at(browser: Client, name: str, path: str) -> set[str]:
    """Of the page's own form, read once."""
    if name not in _fields:
        gets = "get" in PAGES[name]
        _fields[name] = fields_of(sent(browser, "get", path, {})) if gets else set()
    return _fields[name]


def broken(browser: Client, pages: dict[str, str], odd: Any) -> list[str]:
    """A line for each request that found a fault of ours."""
    wrong = []
    for name, path in pages.items():
        fields = fields_at(browser, name, path)
        for method in PAGES[name]:
            names = {*QUERY, *fields} if method == "get" else {*fields, "word", "one", "reason"}
            answer = sent(browser, method, path, dict.fromkeys(sorted(names), odd))
            if answer.status_code >= 500:
                wrong.append(f"{method} {path}: {answer.status_code}")
    return wrong


@pytest.mark.part("generated")
@pytest.mark.parametrize("case", ODD)
def test_an_odd_value_breaks_no_page(browser: Client, pages: dict[str, str], case: str) -> None:
    assert broken(browser, pages, ODD[case]) == []


def test_a_word_breaks_none_of_some_pages(browser: Client, pages: dict[str, str]) -> None:
    assert broken(browser, dict([*pages.items()][::10]), "word") == []


# What Django's lists and forms of the administration read of an address.
ADMIN_QUERY = (
    "q", "o", "p", "e", "all", "_popup", "_to_field", "_changelist_filters", "_facets", "next",
    "id", "pk__in", "organization__slug", "organization__id__exact", "password__startswith",
)  # fmt: skip


def broken_administration(browser: Client, odd: Any, first: int, every: int) -> list[str]:
    """A line for each request to a list, a row or a form that found a fault of ours."""
    wrong = []
    for model, page in [*admin.site._registry.items()][first::every]:
        at = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        columns = [one[0] if isinstance(one, tuple) else one for one in page.list_filter]
        columns = [one for one in columns if isinstance(one, str)]
        ways = ("", "__exact", "__gte", "__in", "__isempty", "__isnull")
        names = {*ADMIN_QUERY, *(f"{one}{way}" for one in columns for way in ways)}
        row = model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
        word = quote(odd if isinstance(odd, bytes) else str(odd)[:3_000], safe="")
        asked = [("get", at, {name: odd}) for name in sorted(names)]
        asked += [("get", f"{at}{word}/{what}/", {}) for what in ("change", "delete", "history")]
        forms = ["add/", f"{row}/change/", f"{row}/delete/", f"{row}/permissions/"]
        for path in [at, *(f"{at}{one}" for one in forms)]:
            fields = fields_of(sent(browser, "get", path, {}))
            actions = [*(page.actions or ()), "delete_selected"] if path == at else []
            bodies = [dict.fromkeys(sorted({*fields, "word"}), odd)]
            bodies += [{"action": str(one), "_selected_action": odd} for one in actions]
            asked += [("post", path, body) for body in bodies]
        for method, path, data in asked:
            answer = sent(browser, method, path, data)
            if answer.status_code >= 500:
                wrong.append(f"{method} {path[:80]} {[*data][:3]}: {answer.status_code}")
    return wrong


@pytest.mark.part("generated")
@pytest.mark.parametrize("case", ODD)
def test_an_odd_value_breaks_nothing_of_the_administration(browser: Client, case: str) -> None:
    """Each value for a quarter of the lists, and each list with every fourth value."""
    assert broken_administration(browser, ODD[case], [*ODD].index(case) % 4, 4) == []


def test_a_word_breaks_no_list_of_some_rows_of_the_administration(browser: Client) -> None:
    assert broken_administration(browser, "word", 0, 24) == []


def test_a_nul_is_refused_once_and_says_what_to_do(browser: Client, pages: dict[str, str]) -> None:
    for answer in (
        browser.get(pages["catalog"], {"q": NUL}),
        browser.post(pages["group-new"], {"name": NUL}),
        browser.get("/tools/a%00b/"),
    ):
        assert answer.status_code == 400
        assert "NUL character" in notes(answer)["refused"][0]


@pytest.mark.parametrize(
    "onwards",
    ["word", "//evil.example", "https://evil.example/", "/\\evil.example", "javascript:alert(1)",
     "/a\nb", "/" + "x" * 3_000],
)  # fmt: skip
def test_a_login_leads_nowhere_but_to_a_path_of_ours(side: Side, db: None, onwards: str) -> None:
    user = factories.superuser(side.organization)
    form = {"username": user.username, "password": "correct horse", "next": onwards}
    answer = Client().post("/login/", form)
    assert (answer.status_code, answer["Location"]) == (302, "/home/")
