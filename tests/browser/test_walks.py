"""Whole ways of people through the product, by what stands on the pages alone.

No walk types an address. Each at a desk and on a phone, with and without JavaScript.
"""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import factories
from tests.browser.conftest import enter
from tests.browser.test_pages import BARE, PHONE
from tests.stubs.mcp import mcp_serving
from tests.tools.held import held
from tests.waiting import until
from tools.execution.actions import execute
from tools.models import Confirmation, Organization, Tool, User

BROWSER = pytest.mark.part("browser")
ELSEWHERE = [
    pytest.param(PHONE, id="phone", marks=BROWSER),
    pytest.param(BARE, id="desk without JavaScript", marks=BROWSER),
    pytest.param(PHONE | BARE, id="phone without JavaScript", marks=BROWSER),
]
EVERYWHERE = pytest.mark.parametrize(
    "page", [pytest.param({}, id="desk", marks=BROWSER), *ELSEWHERE], indirect=True
)
SLOWLY = 20_000


def go(page: Page, label: str) -> None:
    """By the menu, which a phone folds."""
    menu = page.get_by_text("Menu", exact=True)
    if menu.is_visible():
        menu.click()
    page.get_by_role("navigation").get_by_role("link", name=re.compile(f"^{label}")).locator(
        "visible=true"
    ).first.click()


def followed(page: Page, wanted: Locator) -> None:
    """Without JavaScript a page moves on when it is loaded again."""

    def there() -> bool:
        wanted.is_visible() or page.reload()
        return wanted.is_visible()

    until(there)


def logged_in_again(page: Page, user: User) -> None:
    """By the form, which leaves a record."""
    page.context.clear_cookies()
    enter(page, user)


@pytest.mark.parametrize("page", [pytest.param({}, id="desk"), *ELSEWHERE], indirect=True)
def test_from_the_first_login_to_the_first_call(
    page: Page, place: Organization, administrator: User
) -> None:
    """At a desk in `make test` too."""
    factories.workspace_file(place, "notes.txt", b"Return the torque wrench.\n")
    logged_in_again(page, administrator)
    page.get_by_role("link", name="Toolcrib").click()
    expect(page.get_by_role("heading", name="No calls yet")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="catalog").click()
    page.get_by_role("link", name="read_file", exact=True).click()
    page.get_by_label("path").fill("notes.txt")
    page.get_by_role("button", name="Run read_file").click()
    expect(page.locator("#result .chip").first).to_have_text("Success", timeout=SLOWLY)
    expect(page.locator("#result")).to_contain_text("Return the torque wrench.")
    page.get_by_role("link", name="Toolcrib").click()
    expect(page.get_by_role("heading", name="How it went")).to_be_visible()


@EVERYWHERE
def test_a_server_of_others_is_connected_and_its_tool_called(
    page: Page, place: Organization
) -> None:
    with mcp_serving() as stub:
        go(page, "Servers")
        page.get_by_role("link", name="New server").click()
        page.get_by_label("Name required", exact=True).fill("far")
        page.get_by_label("Address").fill(stub.url)
        page.get_by_role("button", name="Register the server").click()
        page.get_by_role("button", name="Refresh now").click()
        expect(page.locator("p.banner[role=status]")).to_contain_text("far lists 1 tool.")
        page.get_by_role("checkbox", name="Pick echo").check()
        page.get_by_role("button", name="Review what I picked").click()
        assert not Tool.objects.filter(organization=place, type="mcp-tool").exists()
        page.get_by_label("Name here").fill("repeat")
        page.get_by_role("button", name="Import it as I read it").click()
        page.get_by_role("link", name="repeat").click()
        page.get_by_label("rest").fill('{"text": "hello over there"}')
        page.get_by_role("button", name="Run repeat").click()
        expect(page.locator("#result .chip").first).to_have_text("Success", timeout=SLOWLY)
        expect(page.locator("#result")).to_contain_text("hello over there")


@EVERYWHERE
def test_a_failed_call_is_found_mended_and_made_again(page: Page, place: Organization) -> None:
    source = "def main(p):\n    return 12 / len(p['text'])\n"
    factories.tool(place, "share_out", implementation={"source": source})
    clerk = factories.caller(factories.agent(place, "clerk"))
    failed = execute(caller=clerk, call=factories.call("share_out", {"text": ""}), wait_s=20)
    page.get_by_role("link", name="Toolcrib").click()
    page.locator(f"#failed-{failed.pk}").click()
    page.get_by_role("link", name="Open in playground").click()
    expect(page.get_by_label("Call as")).to_have_value("clerk")
    page.get_by_label("text").first.fill("four")
    page.get_by_role("button", name="Run share_out").click()
    now = page.get_by_role("heading", name="Before and now")
    expect(now).to_be_visible(timeout=SLOWLY)
    followed(page, page.locator("#answer .chip", has_text="Success"))


@EVERYWHERE
def test_a_record_is_found_and_its_proof_holds(page: Page, administrator: User) -> None:
    logged_in_again(page, administrator)
    go(page, "Audit")
    mine = page.locator(".records details", has_text="AUTH.LOGIN").first
    mine.locator("summary").click()
    mine.get_by_role("link").last.click()
    followed(page, page.get_by_role("link", name="Verify"))
    page.get_by_role("link", name="Verify").click()
    expect(page.get_by_text("Proved", exact=True).first).to_be_visible()


@EVERYWHERE
def test_a_smaller_tier_closes_tools_and_undo_opens_them(page: Page, place: Organization) -> None:
    factories.tool(place, "weigh")
    go(page, "Licences")
    page.get_by_label("Tier", exact=True).select_option("Core")
    page.get_by_role("button", name="Show what would change").click()
    change = page.locator("#change")
    expect(change.get_by_text("weigh").first).to_be_visible()
    assert Tool.objects.get(organization=place, name="weigh").status == "active"
    page.get_by_role("button", name="Change the tier to Core").click()
    expect(page.get_by_role("heading", name="Not in the licence")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("link", name="weigh").first).to_be_visible()
    assert Tool.objects.get(organization=place, name="weigh").status == "disabled"
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("heading", name="Not in the licence")).to_have_count(0)
    assert Tool.objects.get(organization=place, name="weigh").status == "active"


@EVERYWHERE
def test_a_batch_of_held_calls_is_approved_by_keyboard(page: Page, place: Organization) -> None:
    factories.tool(place, requires_confirmation=True)
    clerk = factories.agent(place, "clerk")
    waiting = [held(clerk, text=text) for text in ("one", "two", "three")]
    go(page, "Confirmations")
    expect(page.locator("article.held")).to_have_count(3)
    if page.locator("html.scripted").count():
        for key in ("j", "x", "j", "x", "a"):
            page.keyboard.press(key)
    else:
        for box in page.get_by_role("checkbox").all()[:2]:
            box.press("Space")
        page.get_by_role("button", name="Approve picked").press("Enter")
    expect(page.locator(".banner[data-tone=good]")).to_have_count(2)
    now = [Confirmation.objects.get(pk=one.pk).status for one in waiting]
    assert now == ["approved", "approved", "pending"]


@EVERYWHERE
def test_why_an_agent_cannot_see_a_tool_is_found_and_mended(
    page: Page, place: Organization
) -> None:
    factories.tool(place, "weigh", group=["scales"])
    factories.agent(place, "clerk", groups=["default"], tools=["*"])
    go(page, "Catalog")
    page.get_by_role("link", name="weigh", exact=True).click()
    page.get_by_role("link", name="Who can use it", exact=True).click()
    expect(page.get_by_role("row", name="clerk")).to_contain_text("Group")
    page.get_by_role("link", name="Explain weigh for clerk").click()
    page.locator("summary", has_text="weigh").click()
    expect(page.locator(".remedy").first).to_contain_text("scales")
    page.get_by_role("link", name="What clerk holds").click()
    page.get_by_label("Give", exact=True).select_option("requestable_group")
    page.get_by_label("Names").fill("scales")
    page.get_by_role("button", name="Give").click()
    expect(page.get_by_text("clerk holds scales.")).to_be_visible()
    page.get_by_role("link", name="Every tool, and the gate that says no").click()
    expect(page.locator("li", has_text="weigh").locator(".gates-end").last).to_have_text("passes")
