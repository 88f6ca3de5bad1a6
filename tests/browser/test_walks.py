"""Whole ways of people through the product, by what stands on the pages alone.

No walk types an address. Each at a desk and on a phone, with and without JavaScript.
"""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests import factories
from tests.browser.conftest import enter
from tests.browser.test_pages import BARE, PHONE
from tests.browser.test_sources import server_of_one_tool
from tests.conditions import until
from tests.stubs.mcp import mcp_serving
from tests.tools.approval_requests import call_awaiting_approval
from tools.execution.answer import execute
from tools.models import Confirmation, Organization, Tool, User
from tools.ui.workflow.explanations import GATE_LABELS

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


def go(page: Page, address: str) -> None:
    """By the menu, which a phone folds."""
    menu = page.locator(".mobile-menu summary")
    if menu.is_visible():
        menu.click()
    page.locator(f"nav a[href='{address}']").locator("visible=true").first.click()


def ran(page: Page) -> Locator:
    """That a try of a tool succeeded."""
    return page.locator("#answer .result-line .chip[data-status=Success]:not(.big)")


def followed(page: Page, wanted: Locator) -> None:
    """Without JavaScript a page moves on when it is loaded again."""

    def is_visible() -> bool:
        wanted.is_visible() or page.reload()
        return wanted.is_visible()

    until(is_visible)


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
    page.locator("a.brand").click()
    page.locator("[data-note=no-calls] a[href='/']").click()
    page.locator("a[href='/tools/read_file/']").click()
    page.locator(".tabs a[href$='/call/']").click()
    page.locator("[name='p.path']").fill("notes.txt")
    page.locator("#run").click()
    expect(ran(page)).to_be_visible(timeout=SLOWLY)
    expect(page.locator("#answer")).to_contain_text("Return the torque wrench.")
    page.locator("a.brand").click()
    expect(page.locator("#usage-charts")).to_be_visible()


@EVERYWHERE
def test_a_server_of_others_is_connected_and_its_tool_called(
    page: Page, place: Organization
) -> None:
    with mcp_serving() as stub:
        go(page, "/servers/")
        page.locator(".head a[href='/servers/new/']").click()
        server_of_one_tool(page, stub)
        assert not Tool.objects.filter(organization=place, type="mcp-tool").exists()
        page.locator("[name^=name-]").fill("repeat")
        page.locator("[name=do][value=write]").click()
        page.get_by_role("link", name="repeat").click()
        page.locator(".tabs a[href$='/call/']").click()
        page.locator("[name='p.rest']").fill('{"text": "hello over there"}')
        page.locator("#run").click()
        expect(ran(page)).to_be_visible(timeout=SLOWLY)
        expect(page.locator("#answer")).to_contain_text("hello over there")


@EVERYWHERE
def test_a_failed_call_is_found_mended_and_made_again(page: Page, place: Organization) -> None:
    source = "def main(p):\n    return 12 / len(p['text'])\n"
    factories.tool(place, "share_out", implementation={"source": source})
    clerk = factories.caller(factories.agent(place, "clerk"))
    failed = execute(caller=clerk, call=factories.call("share_out", {"text": ""}), wait_s=20)
    page.locator("a.brand").click()
    page.locator(f"#failed-{failed.pk}").click()
    page.locator(f"a.button[href='/tools/share_out/call/?from={failed.pk}']").last.click()
    expect(page.locator("#as")).to_have_value("clerk")
    page.locator("[name='p.text']").fill("four")
    page.locator("#run").click()
    expect(page.locator("#compared")).to_be_visible(timeout=SLOWLY)
    followed(page, page.locator("#answer .chip[data-status=Success]:not(.big)"))


@EVERYWHERE
def test_a_record_is_found_and_its_proof_holds(page: Page, administrator: User) -> None:
    logged_in_again(page, administrator)
    go(page, "/audit/")
    mine = page.locator(".records details", has_text="AUTH.LOGIN").first
    mine.locator("summary").click()
    mine.locator("a[href*='/audit/records/']").click()
    verify = page.locator("a[href$='/verify/']")
    followed(page, verify)
    verify.click()
    expect(page.locator("[data-note=proved]")).to_be_visible()


@EVERYWHERE
def test_a_smaller_tier_closes_tools_and_undo_opens_them(page: Page, place: Organization) -> None:
    factories.tool(place, "weigh")
    go(page, "/licenses/")
    change = page.locator("#change")
    change.locator("select[name=tier]").select_option("Core")
    change.locator("form[method=get] button").click()
    expect(change.get_by_text("weigh").first).to_be_visible()
    assert Tool.objects.get(organization=place, name="weigh").status == "active"
    change.locator("form[action$='/licenses/tier'] button").click()
    expect(page.locator("#without")).to_be_visible()
    expect(page.locator("main a[href='/tools/weigh/']").first).to_be_visible()
    assert Tool.objects.get(organization=place, name="weigh").status == "disabled"
    page.locator("form[action$='/licenses/undo'] button").click()
    expect(page.locator("#without")).to_have_count(0)
    assert Tool.objects.get(organization=place, name="weigh").status == "active"


@EVERYWHERE
def test_a_batch_of_held_calls_is_approved_by_keyboard(page: Page, place: Organization) -> None:
    factories.tool(place, requires_confirmation=True)
    clerk = factories.agent(place, "clerk")
    waiting = [call_awaiting_approval(clerk, text=text) for text in ("one", "two", "three")]
    go(page, "/confirmations/")
    expect(page.locator("article.approval")).to_have_count(3)
    if page.locator("html.scripted").count():
        for key in ("j", "x", "j", "x", "a", "Enter"):
            page.keyboard.press(key)
    else:
        for box in page.locator("[name=pick]").all()[:2]:
            box.press("Space")
        page.locator("[name=many][value=approve]").press("Enter")
    expect(page.locator(".banner[data-tone=good]")).to_have_count(2)
    now = [Confirmation.objects.get(pk=one.pk).status for one in waiting]
    assert now == ["approved", "approved", "pending"]


@EVERYWHERE
def test_why_an_agent_cannot_see_a_tool_is_found_and_mended(
    page: Page, place: Organization
) -> None:
    factories.tool(place, "weigh", group=["scales"])
    factories.agent(place, "clerk", groups=["default"], tools=["*"])
    go(page, "/")
    page.locator("a[href='/tools/weigh/']").click()
    page.locator("a[href='/tools/weigh/who/']").first.click()
    clerk = page.locator("tr", has=page.locator("a[href='/agents/clerk/']"))
    expect(clerk.locator("strong")).to_have_text(GATE_LABELS["group"])
    clerk.locator("a[href*='/explain/']").click()
    page.locator("summary", has_text="weigh").click()
    expect(page.locator(".remedy").first).to_contain_text("scales")
    page.locator("a[href='/agents/clerk/#grants']").click()
    give = page.locator("form[action$='/agents/clerk/give']")
    give.locator("[name=kind]").select_option("requestable_group")
    give.locator("[name=names]").fill("scales")
    give.locator("button").click()
    expect(page.locator("[data-note=message-success]")).to_contain_text("scales")
    page.locator("a[href='/explain/?agent=clerk']").click()
    weigh = page.locator("li", has_text="weigh").last
    expect(weigh.locator(".gates-end [data-status=success]")).to_be_visible()
