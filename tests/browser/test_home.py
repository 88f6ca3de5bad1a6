"""Home as a person uses it: where a login leads, and what follows what happens."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import crib as cribs
from tests import factories
from tests.browser.conftest import log_in
from tests.browser.test_pages import BARE, PHONE, mark, marked
from tools.execution import events
from tools.models import Agent, Execution, User

pytestmark = pytest.mark.part("browser")


def fail(agent: Agent) -> Execution:
    execution = factories.execution(agent)
    factories.end_execution(execution, status="Failed", error_code="WENT_WRONG")
    events.notify_waiters(execution.pk)
    return execution


def test_who_logs_in_comes_home_and_the_brand_leads_there(
    chromium: Browser, crib: cribs.Crib, administrator: User
) -> None:
    page = chromium.new_page(base_url=crib.url)
    page.goto("/login/")
    log_in(page, administrator)
    expect(page.locator("#house")).to_be_visible()
    page.goto("/inbox/")
    page.locator("a.brand").click()
    expect(page).to_have_url("/home/")
    page.context.close()


def test_what_fails_appears_without_a_reload(page: Page, caller: Agent) -> None:
    fail(caller)
    page.goto("/home/")
    mark(page)
    failures = page.locator("#now .status-counts a[href*='status=failed'] strong")
    expect(failures).to_have_text("1")
    fail(caller)
    expect(failures).to_have_text("2", timeout=20_000)
    assert marked(page)


@pytest.mark.parametrize("page", [{}, PHONE, BARE, PHONE | BARE], indirect=True)
def test_the_other_span_is_a_link_and_its_address_stays(page: Page, caller: Agent) -> None:
    fail(caller)
    page.goto("/home/")
    page.locator("#over-14d").click()
    expect(page).to_have_url("/home/?over=14d")
    expect(page.locator("#over-14d")).to_have_attribute("aria-current", "page")
    page.locator("#usage-charts summary").first.click()
    expect(page.locator("#usage-charts tbody").first.get_by_role("row")).to_have_count(14)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_that_is_renewed_while_it_is_pressed_is_followed(page: Page, caller: Agent) -> None:
    first = fail(caller)
    page.goto("/home/")
    page.locator(f"#failed-{first.pk}").hover()
    page.mouse.down()
    with page.expect_response(lambda answer: "part=now" in answer.url and answer.status == 200):
        fail(caller)
    page.evaluate(
        "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
    )
    page.mouse.up()
    expect(page).to_have_url(f"/executions/{first.pk}/")


def test_what_came_while_something_was_pressed_is_shown_after(page: Page, caller: Agent) -> None:
    fail(caller)  # before the first call there is nothing to follow
    page.goto("/home/")
    page.get_by_role("heading", level=1).hover()
    page.mouse.down()
    with page.expect_response(lambda answer: "part=now" in answer.url and answer.status == 200):
        failed = fail(caller)
    page.mouse.up()
    expect(page.locator(f"#failed-{failed.pk}")).to_be_visible(timeout=10_000)
