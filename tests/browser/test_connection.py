"""What follows something says when it cannot, and when it can again."""

import pytest
from playwright.sync_api import Browser, expect

from tests import crib as cribs
from tests.browser.conftest import context_of
from tools.models import User

pytestmark = pytest.mark.part("browser")


def test_a_lost_connection_is_said_and_so_is_that_it_is_back(
    chromium: Browser, crib: cribs.Crib, administrator: User
) -> None:
    page = context_of(administrator, chromium, crib).new_page()
    page.goto("/executions/")
    page.context.set_offline(True)
    expect(page.locator("#notice [data-note=no-answer]")).to_be_visible(timeout=15_000)
    page.context.set_offline(False)
    expect(page.locator("#notice")).to_be_empty(timeout=15_000)
    page.context.close()
