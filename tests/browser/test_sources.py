"""Sources of tools as a person sets them up, in a browser without JavaScript."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import BARE
from tests.stubs.mcp import McpStub, mcp_serving
from tests.ui.sources import Author, told
from tools.models import Organization, Tool, ToolService

pytestmark = pytest.mark.part("browser")


@pytest.fixture
def stub() -> Iterator[McpStub]:
    with mcp_serving() as made:
        yield made


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_a_server_is_registered_read_and_imported(
    page: Page, place: Organization, stub: McpStub
) -> None:
    page.goto("/servers/new/")
    page.get_by_label("Name required", exact=True).fill("far")
    page.get_by_label("Address").fill(stub.url)
    page.get_by_role("button", name="Register the server").click()
    page.get_by_role("button", name="Refresh now").click()
    expect(page.locator("p.banner[role=status]")).to_contain_text("far lists 1 tool.")
    page.get_by_role("checkbox", name="Pick echo").check()
    page.get_by_role("button", name="Review what I picked").click()
    page.get_by_label("Name here").fill("repeat")
    page.get_by_role("button", name="Import it as I read it").click()
    expect(page.get_by_role("link", name="repeat")).to_be_visible()
    assert Tool.objects.filter(organization=place, name="repeat", type="mcp-tool").exists()


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_an_announcement_is_read_and_approved(page: Page, place: Organization) -> None:
    Author(place).says("jokes", [told("tell", "jokes")])
    page.goto("/services/")
    page.get_by_role("link", name="jokes").click()
    expect(page.locator("#review")).to_contain_text("Tells one.")
    page.get_by_role("button", name="Approve what I read").click()
    expect(page.locator("p.banner[role=status]")).to_contain_text("holds now as you read it")
    assert ToolService.objects.get(organization=place, name="jokes").digest
