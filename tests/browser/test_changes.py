"""Changes of upstreams as a person reads and decides them."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests import factories
from tests.browser.test_pages import BARE, PHONE
from tools.catalog.signatures.drift import note_upstream
from tools.models import Organization, Tool, UpstreamChange

pytestmark = pytest.mark.part("browser")


@pytest.fixture
def change(place: Organization) -> UpstreamChange:
    tool = factories.tool(place)
    assert tool.version is not None
    seen = tool.version.definition | {"description": "Re\u0430ds\u3164 it."}
    change = note_upstream(tool=tool, seen=seen, by=factories.by(place))
    assert change is not None
    return change


@pytest.mark.parametrize("page", [PHONE | BARE], indirect=True)
def test_a_change_is_read_and_approved_on_a_phone_without_javascript(
    change: UpstreamChange, page: Page
) -> None:
    page.goto("/changes/")
    page.get_by_role("link", name="echo").click()
    expect(page.locator("mark", has_text="U+3164").first).to_be_visible()
    page.locator("[name=word][value=approve]").click()
    expect(page.locator("[data-note=message-success]")).to_contain_text("1.0.1")
    assert Tool.objects.get(pk=change.tool_id).status == "active"


def test_the_lists_change_without_a_reload(change: UpstreamChange, page: Page) -> None:
    page.goto("/changes/")
    page.evaluate("document.body.dataset.mark = 'kept'")
    page.locator("#state-rejected").click()
    expect(page.locator("[data-note=none-rejected]")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/changes/\?state=rejected$"))
    assert page.evaluate("document.body.dataset.mark === 'kept'")
    page.go_back()
    expect(page.locator("#results")).to_contain_text("echo")
