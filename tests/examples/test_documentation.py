"""What can be checked of the pages without a reader."""

import re

import pytest

from tests.crib import CHECKOUT
from tools.api.urls import urlpatterns

PAGES = sorted((CHECKOUT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_that_are_there(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_addresses_on_a_page_are_addresses_of_the_api(page):
    there = [re.sub(r"<\w+:\w+>", "[^/]+", str(url.pattern)) for url in urlpatterns]
    named = re.findall(r"(?:/api/v1|\$API)/([\w/{}$-]+)", page.read_text("utf-8"))
    assert [name for name in named if not any(re.fullmatch(one, name) for one in there)] == []


def test_every_environment_variable_is_on_the_operators_page():
    settings = (CHECKOUT / "config" / "settings.py").read_text("utf-8")
    names = set(re.findall(r'env_\w+\(\s*"([A-Z_]+)"', settings))
    page = (CHECKOUT / "docs" / "operations.md").read_text("utf-8")
    assert names
    assert names - set(re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)) == set()
