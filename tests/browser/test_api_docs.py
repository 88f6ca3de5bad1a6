from playwright.sync_api import Browser

from tests import crib as cribs


def test_the_api_can_be_tried_under_the_strict_policy(chromium: Browser, crib: cribs.Crib) -> None:
    said: list[str] = []
    page = chromium.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"{crib.url}/api/docs/")
    page.locator("#operations-tools-execute_tool .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").wait_for()
    page.close()
    assert said == []
