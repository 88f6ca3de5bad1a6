"""The menu: what it holds for whom, in groups, with icons of one file."""

import re

import pytest
from django.conf import settings
from django.test import Client

from tests.ui.conftest import Grant
from tests.ui.pages import text
from tools.ui.settings.styleguide import read_static

GROUPS = ["work", "catalog", "sources", "evidence", "administration"]
USED = re.compile(r'<use href="[^"#]*img/icons[^"#]*\.svg#([a-z-]+)"')


def groups(page: str) -> list[str]:
    rail = page.partition('class="menu-rail"')[2].partition("</nav>")[0]
    return re.findall(r'role="group" aria-label="[^"]+" data-group="([^"]+)"', rail)


def test_the_menu_is_in_labelled_groups(admin_client: Client) -> None:
    assert groups(text(admin_client.get("/"))) == GROUPS


def test_a_group_of_nothing_is_not_shown(client_of: Grant) -> None:
    assert groups(text(client_of().get("/"))) == ["work", "catalog", "administration"]


def test_every_entry_has_an_icon_that_is_drawn(admin_client: Client) -> None:
    page = text(admin_client.get("/ui/styleguide/"))
    drawn = re.findall(r'<symbol id="([a-z-]+)"', read_static("img/icons.svg"))
    rail = page.partition('class="menu-rail"')[2].partition("</nav>")[0]
    assert len(USED.findall(rail)) == rail.count("<a ")
    assert set(USED.findall(page)) == set(drawn), "each is used, and none is missing"


def test_no_line_is_drawn_twice() -> None:
    lines = re.findall(r' d="([^"]+)"', read_static("img/icons.svg"))
    assert len(lines) == len(set(lines))
    assert "<path" not in (settings.BASE_DIR / "templates" / "base.html").read_text()


@pytest.mark.parametrize("at", ["/executions/", "/import/", "/knowledge/", "/servers/", "/keys/"])
def test_one_entry_says_where_one_is_and_nothing_waits(admin_client: Client, at: str) -> None:
    page = text(admin_client.get(at))
    rail = page.partition('class="menu-rail"')[2].partition("</nav>")[0]
    (current,) = re.findall(r'<a href="([^"]+)" aria-current="page"', rail)
    assert current == at
    assert "held-count" not in rail
