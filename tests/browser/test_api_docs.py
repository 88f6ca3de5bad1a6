import pytest
from playwright.sync_api import Browser

from tests import crib as cribs
from tests.conditions import until

pytestmark = pytest.mark.part("browser")


def test_the_api_can_be_tried_under_the_strict_policy(chromium: Browser, crib: cribs.Crib) -> None:
    said: list[str] = []
    page = chromium.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{crib.url}/api/docs/")
    page.locator(".opblock").first.wait_for()
    operation = page.locator("#operations-tools-execute_tool .opblock-summary-control")

    def scrolled_to() -> bool:
        """Of so many operations the page draws those that are in sight."""
        page.mouse.wheel(0, 300)
        page.evaluate(
            "() => new Promise((drawn) =>"
            " requestAnimationFrame(() => requestAnimationFrame(drawn)))"
        )
        return operation.count() > 0

    until(scrolled_to)
    operation.click()
    page.locator(".try-out__btn").wait_for()
    page.close()
    assert said == []
