"""Keys that search, go places and show their help; and what is left without them."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import BARE, PHONE, SWITCH
from tools.models import Agent

pytestmark = pytest.mark.part("browser")


def test_a_slash_searches_the_page(page: Page) -> None:
    page.keyboard.press("/")
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.type("g/t?")
    expect(page.locator("#q")).to_have_value("g/t?")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_slash_searches_the_catalog_where_a_page_has_no_search(page: Page) -> None:
    page.goto("/sandbox/")
    page.keyboard.press("/")
    expect(page).to_have_url("/#q")
    expect(page.locator("#q")).to_be_focused()


@pytest.mark.parametrize(
    ("key", "own"),
    [
        ("h", "#house"),
        ("e", "#by-status"),
        ("p", "#found"),
        ("c", "[data-note=nothing-waits]"),
        ("a", "#outcome"),
        ("t", "#counts"),
    ],
)
def test_g_and_a_letter_go_places(page: Page, key: str, own: str) -> None:
    """Each place has something of its own."""
    page.goto("/inbox/")
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page.locator(own)).to_be_visible()


def test_a_letter_alone_goes_nowhere(page: Page) -> None:
    page.goto("/inbox/")
    page.keyboard.press("e")
    page.keyboard.press("g")
    page.keyboard.press("x")
    page.keyboard.press("e")
    expect(page).to_have_url("/inbox/")


def test_a_question_mark_shows_the_help_and_escape_closes_it(page: Page) -> None:
    page.keyboard.press("?")
    help_ = page.locator("#shortcuts")
    expect(help_.locator("[data-go=e]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()


def test_a_button_shows_the_help_too(page: Page) -> None:
    page.locator("[data-opens=shortcuts]:visible").click()
    help_ = page.locator("#shortcuts")
    help_.get_by_role("button").click()
    expect(help_).to_be_hidden()


def test_keys_are_turned_off_and_stay_off(page: Page) -> None:
    page.keyboard.press("?")
    page.locator("#shortcuts-on").uncheck()
    page.reload()
    page.keyboard.press("/")
    expect(page.locator("#q")).not_to_be_focused()


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_javascript_no_button_promises_keys(page: Page) -> None:
    expect(page.locator("[data-opens=shortcuts]:visible")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_the_menu_of_a_phone_is_walked_by_keyboard(page: Page) -> None:
    page.locator(".mobile-menu summary").focus()
    page.keyboard.press("Enter")
    menu = page.locator(".mobile-menu nav")
    expect(menu.locator("[data-group=sources]")).to_be_visible()
    page.keyboard.press("Tab")
    expect(menu.get_by_role("link").first).to_be_focused()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


def test_what_is_said_is_also_shown(page: Page) -> None:
    page.locator(SWITCH).click()
    expect(page.locator("#toast.toast")).to_contain_text("read_file")


def opened(page: Page) -> None:
    page.keyboard.press("Control+k")
    expect(page.locator("#palette")).to_be_visible()


def test_a_page_is_found_and_opened_by_keyboard(page: Page) -> None:
    page.goto("/inbox/")
    opened(page)
    page.keyboard.type("exec")
    page.keyboard.press("Enter")  # sooner than the answer
    expect(page.locator("#by-status")).to_be_visible()


def test_a_tool_is_chosen_with_arrows(page: Page) -> None:
    opened(page)
    page.keyboard.type("read_file")
    found = page.locator("#goals a", has_text="read_file").first
    expect(found).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(found).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url("/tools/read_file/")


def test_arrows_go_around(page: Page) -> None:
    opened(page)
    expect(page.locator("#goals a").first).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#goals a").last).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#go-to")).to_be_focused()


def test_the_focus_comes_back(page: Page) -> None:
    page.goto("/executions/")
    page.locator("#by-tool").focus()
    opened(page)
    page.keyboard.press("Escape")
    expect(page.locator("#by-tool")).to_be_focused()


def test_what_was_found_is_said(page: Page) -> None:
    opened(page)
    page.keyboard.type("zzzz")
    expect(page.locator("#palette-status[data-note=nothing-found]")).not_to_be_empty()
    page.locator("#go-to").fill("catalog")
    expect(page.locator("#palette-status[data-note=found]")).to_contain_text(re.compile("[1-9]"))


def test_the_dialog_does_not_jump_when_answers_come(page: Page) -> None:
    opened(page)
    dialog = page.locator("#palette")
    before = dialog.bounding_box()
    expect(page.locator("#goals a").first).to_be_visible()
    assert dialog.bounding_box() == before


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_a_button_opens_it_on_a_phone(page: Page) -> None:
    page.locator("[data-opens=palette]").click()
    dialog = page.locator("#palette")
    expect(dialog.locator("a[href='/']")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_javascript_the_button_leads_to_the_same_answers(page: Page) -> None:
    page.locator("[data-opens=palette]").click()
    search = page.locator("main form[action$='/search/']")
    search.locator("[name=q]").fill("read_file")
    search.locator("button").click()
    page.locator(".palette-results a[href='/tools/read_file/']").click()
    expect(page).to_have_url("/tools/read_file/")


def test_the_help_names_it(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#shortcuts a[href='/search/']")).to_be_visible()


def test_what_a_form_did_has_the_focus_on_the_page_that_follows(page: Page, caller: Agent) -> None:
    """So that screen readers say it (review 1.15)."""
    page.goto(f"/agents/{caller.slug}/edit/")
    page.locator(".editor-foot .primary").click()
    expect(page.locator("[data-note=message-info]")).to_be_focused()
