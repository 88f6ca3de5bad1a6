"""The pages as a person uses them."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests import factories
from tools.execution.answer import execute
from tools.models import Execution, Organization, Tool, ToolGroup
from tools.ui.suggestions import MOST_OFFERED

pytestmark = pytest.mark.part("browser")

SLOW = (
    "import time\ndef main(parameters):\n    time.sleep(parameters['seconds'])\n"
    "    return {'slept': parameters['seconds']}\n"
)
SECONDS = {"name": "seconds", "type": "Number", "description": "How long.", "required": True}
PHONE = {"viewport": {"width": 390, "height": 844}}
BARE = {"java_script_enabled": False}
SWITCH = "tr:has(a[href='/tools/read_file/']) [role=switch]"


@pytest.fixture
def slow(place: Organization) -> Tool:
    return factories.tool(place, "slow", parameters=[SECONDS], implementation={"source": SLOW})


def mark(page: Page) -> None:
    """Something that a reload would take away."""
    page.evaluate("document.body.dataset.mark = 'kept'")


def marked(page: Page) -> bool:
    return bool(page.evaluate("document.body.dataset.mark === 'kept'"))


def test_the_switch_needs_no_reload(page: Page, place: Organization) -> None:
    mark(page)
    switch = page.locator(SWITCH)
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(page.locator("#toast")).to_contain_text("read_file")
    expect(page.locator("#counts [data-note=disabled]")).to_have_text("1")
    assert marked(page)
    assert Tool.objects.get(organization=place, name="read_file").status == "disabled"


def test_the_switch_is_worked_by_keyboard_and_keeps_the_focus(page: Page) -> None:
    switch = page.locator(SWITCH)
    switch.focus()
    page.keyboard.press("Space")
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(switch).to_be_focused()
    page.keyboard.press("Enter")
    expect(switch).to_have_attribute("aria-checked", "true")


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_the_switch_works_without_javascript(page: Page, place: Organization) -> None:
    page.goto("/?q=read")
    page.locator(SWITCH).click()
    expect(page).to_have_url(re.compile(r"/\?q=read$"))
    expect(page.locator(SWITCH)).to_have_attribute("aria-checked", "false")


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_the_filters_work_without_javascript(page: Page) -> None:
    page.locator("#q").fill("validate")
    page.locator("#filters button").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_search_stands_in_the_address_and_survives_a_reload(page: Page) -> None:
    mark(page)
    page.locator("#q").press_sequentially("validate")
    expect(page).to_have_url(re.compile(r"/\?q=validate$"))
    expect(page.locator("tbody tr")).to_have_count(1)
    assert marked(page)
    page.reload()
    expect(page.locator("#q")).to_have_value("validate")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_going_back_undoes_a_sort(page: Page) -> None:
    page.locator("a[href*='sort=-name']").click()
    expect(page).to_have_url(re.compile(r"sort=-name"))
    expect(page.locator("tbody th a").first).to_have_text("write_file")
    page.go_back()
    expect(page.locator("tbody th a").first).to_have_text(sorted(factories.BUILTIN_NAMES)[0])


def test_a_try_shows_its_result_without_a_reload(page: Page, slow: Tool) -> None:
    page.goto("/tools/slow/call/")
    mark(page)
    page.locator("[name='p.seconds']").fill("0.1")
    page.locator("#run").click()
    expect(page.locator("#answer .chip[data-status=Success]:not(.big)")).to_be_visible()
    expect(page.locator("#answer pre").first).to_contain_text('"slept": 0.1')
    expect(page.locator("#answer [data-note=peak-memory]")).to_be_visible()
    assert marked(page)


def test_a_slow_try_fills_in_when_it_is_over(page: Page, slow: Tool) -> None:
    page.goto("/tools/slow/call/")
    page.locator("[name='p.seconds']").fill("4")
    page.locator("#run").click()
    expect(page.locator("#answer .chip[data-status=Running]")).to_be_visible()
    expect(page.locator("#answer .chip[data-status=Success]:not(.big)")).to_be_visible()


def test_a_wrong_field_is_led_to(page: Page, slow: Tool) -> None:
    page.goto("/tools/slow/call/")
    page.locator("[name='p.seconds']").fill("long")
    page.locator("#run").click()
    expect(page.locator("[data-note=flaw-seconds]")).to_be_visible()
    expect(page.locator("[name='p.seconds']")).to_be_focused()


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_a_try_works_without_javascript(page: Page, slow: Tool) -> None:
    page.goto("/tools/slow/call/")
    page.locator("[name='p.seconds']").fill("0.1")
    page.locator("#run").click()
    expect(page.locator("#answer .chip[data-status=Success]:not(.big)")).to_be_visible()


def call(place: Organization, seconds: float) -> Execution:
    """An agent calls the tool meanwhile."""
    wanted = factories.call("slow", {"seconds": seconds})
    return execute(caller=factories.caller(factories.agent(place)), call=wanted, wait_s=0)


def test_an_execution_fills_live(page: Page, place: Organization, slow: Tool) -> None:
    page.goto(f"/executions/{call(place, 3).pk}/")
    mark(page)
    expect(page.locator(".timeline [data-event=Started]")).to_be_visible()
    expect(page.locator(".chip.big[data-status=Success]")).to_be_visible()
    expect(page.locator(".timeline [data-event=Completed]")).to_be_visible()
    expect(page.locator("#moving[hx-get]")).to_have_count(0)
    assert marked(page)


def test_an_execution_is_cancelled_live(page: Page, place: Organization, slow: Tool) -> None:
    identifier = call(place, 20).pk
    page.goto(f"/executions/{identifier}/")
    expect(page.locator(".timeline [data-event=Started]")).to_be_visible()
    page.locator("#cancel").click()
    expect(page.locator(".chip.big[data-status=Cancelled]")).to_be_visible()
    assert Execution.objects.get(pk=identifier).status == "Cancelled"


def test_a_new_execution_appears_in_the_list(page: Page, place: Organization, slow: Tool) -> None:
    page.goto("/executions/")
    mark(page)
    expect(page.locator("[data-note=no-calls]")).to_be_visible()
    identifier = call(place, 0).pk
    expect(page.locator(f"#row-{identifier}")).to_be_visible()
    expect(page.locator(f"#row-{identifier} .chip[data-status=Success]")).to_be_visible()
    assert marked(page)


def see(page: Page, hidden: str) -> None:
    page.evaluate(
        f"Object.defineProperty(document, 'hidden', {{get: () => {hidden}, configurable: true}});"
        " document.dispatchEvent(new Event('visibilitychange'))"
    )


def test_a_hidden_page_asks_nothing_and_catches_up_when_it_is_seen(
    page: Page, place: Organization, slow: Tool
) -> None:
    page.clock.install()
    page.goto("/executions/")
    see(page, hidden="true")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(120_000)
    assert asked == []
    with page.expect_request("**/executions/**"):
        see(page, hidden="false")


@pytest.mark.parametrize("page", [PHONE], indirect=True)
@pytest.mark.parametrize("address", ["/", "/tools/read_file/", "/executions/", "/audit/"])
def test_a_phone_never_scrolls_sideways(page: Page, address: str) -> None:
    page.goto(address)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


@pytest.mark.parametrize("page", [PHONE | BARE], indirect=True)
def test_the_menu_folds_without_javascript(page: Page) -> None:
    link = page.locator(".mobile-menu nav a[href='/executions/']")
    expect(link).to_be_hidden()
    page.locator(".mobile-menu summary").click()
    link.click()
    expect(page.locator("#by-status")).to_be_visible()


def test_the_keyboard_skips_to_the_content(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.locator("a[href='#main']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@pytest.mark.parametrize(
    "address",
    ["/audit/", "/tools/read_file/versions/1/", "/admin/", "/admin/tools/tool/",
     "/admin/tools/tool/add/", "/admin/tools/user/add/", "/admin/tools/agent/add/"],
)  # fmt: skip
def test_a_page_obeys_the_policy_in_a_real_browser(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")
    expect(page.locator("h1").first).to_be_visible()


def test_groups_of_a_workflow_are_searched_and_the_chosen_ones_stay(
    page: Page, place: Organization
) -> None:
    names = [f"group-{at:03}" for at in range(MOST_OFFERED + 30)]
    place.groups.bulk_create(ToolGroup(organization=place, name=name) for name in names)
    Organization.objects.next_revision(place.pk)
    page.goto("/workflow/")
    page.locator("[name=group][value=group-003]").check()
    expect(page.locator("#flow h2").first).to_contain_text("group-003")
    page.locator("#q").press_sequentially("12")
    expect(page.locator("[name=group]")).to_have_count(13)
    expect(page.locator("[name=group][value=group-003]")).to_be_checked()
    page.locator("[name=group][value=group-129]").check()
    expect(page.locator("#flow h2").first).to_contain_text("group-129")
    expect(page.locator("#flow h2").first).to_contain_text("group-003")
