"""Sources of tools as a person sets them up, in a browser without JavaScript."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import BARE
from tests.stubs.mcp import McpStub, mcp_serving
from tests.ui.sources import Author, announced_tool
from tools.models import McpServer, Organization, Tool, ToolService

pytestmark = pytest.mark.part("browser")


@pytest.fixture
def stub() -> Iterator[McpStub]:
    with mcp_serving() as made:
        yield made


def server_of_one_tool(page: Page, stub: McpStub) -> None:
    """At the form of a new server; its tool is picked then, and the review of it is open."""
    page.locator("[name=name]").fill("far")
    page.locator("[name=url]").fill(stub.url)
    page.locator("form.editor button.primary").click()
    page.locator("form[action$='/servers/far/refresh'] button").click()
    expect(page.locator("[name=pick]")).to_have_count(1)
    page.locator("tr", has_text="echo").locator("[name=pick]").check()
    page.locator("[name=do][value=review]").click()


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_a_server_is_registered_read_and_imported(
    page: Page, place: Organization, stub: McpStub
) -> None:
    page.goto("/servers/new/")
    server_of_one_tool(page, stub)
    page.locator("[name^=name-]").fill("repeat")
    page.locator("[name=do][value=write]").click()
    expect(page.get_by_role("link", name="repeat")).to_be_visible()
    assert Tool.objects.filter(organization=place, name="repeat", type="mcp-tool").exists()


def test_a_form_gets_as_many_rows_as_are_needed(page: Page, place: Organization) -> None:
    page.goto("/servers/new/")
    page.locator("[name=name]").fill("far")
    page.locator("[name=url]").fill("https://mcp.example/mcp")
    for number in range(4):
        if number == 3:
            page.get_by_role("button", name="Add a row").click()
        page.locator(f"[name=headers-{number}-name]").fill(f"X-Key-{number}")
        page.locator(f"[name=headers-{number}-value]").fill("swordfish")
    page.locator("form.editor button.primary").click()
    expect(page.locator("[data-note=message-success]")).to_contain_text("far")
    row = McpServer.objects.get(organization=place, name="far")
    assert sorted(row.headers) == [f"X-Key-{number}" for number in range(4)]


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_an_announcement_is_read_and_approved(page: Page, place: Organization) -> None:
    Author(place).says("jokes", [announced_tool("tell", "jokes")])
    page.goto("/services/")
    page.get_by_role("link", name="jokes").click()
    expect(page.locator("#review")).to_contain_text("Tells one.")
    page.locator("[name=do][value=approve]").click()
    expect(page.locator("[data-note=message-success]")).to_contain_text("jokes")
    assert ToolService.objects.get(organization=place, name="jokes").digest
