import pytest
from playwright.sync_api import Browser

from tests import crib as cribs

pytestmark = pytest.mark.part("browser")


def test_the_api_can_be_tried_under_the_strict_policy(chromium: Browser, crib: cribs.Crib) -> None:
    said: list[str] = []
    page = chromium.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{crib.url}/api/docs/")
    page.locator(".opblock").first.wait_for()
    operation = page.locator("#operations-tools-execute_tool .opblock-summary-control")
    for _ in range(50):  # of so many operations the page draws those that are in sight
        if operation.count():
            break
        page.mouse.wheel(0, 300)
        page.wait_for_timeout(100)
    operation.click()
    page.get_by_role("button", name="Try it out").wait_for()
    page.close()
    assert said == []
