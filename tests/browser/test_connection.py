"""What follows something says when it cannot, and when it can again."""

from playwright.sync_api import Browser, expect

from tests import crib as cribs
from tests.browser.conftest import enter
from tools.models import User


def test_a_lost_connection_is_said_and_so_is_that_it_is_back(
    chromium: Browser, crib: cribs.Crib, administrator: User
) -> None:
    page = chromium.new_page(base_url=crib.url)
    enter(page, administrator)
    page.goto("/executions/")
    page.context.set_offline(True)
    expect(page.locator("#notice")).to_have_text("The server does not answer.", timeout=15_000)
    page.context.set_offline(False)
    expect(page.locator("#notice")).to_be_empty(timeout=15_000)
    page.context.close()
