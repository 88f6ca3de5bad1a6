"""Keys that search, go places and show their help; and what is left without them."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import BARE, PHONE

pytestmark = pytest.mark.part("browser")


def test_a_slash_searches_the_page(page: Page) -> None:
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()
    page.keyboard.type("g/t?")
    expect(page.get_by_role("searchbox", name="Search")).to_have_value("g/t?")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_slash_searches_the_catalog_where_a_page_has_no_search(page: Page) -> None:
    page.goto("/sandbox/")
    page.keyboard.press("/")
    expect(page).to_have_url("/#q")
    expect(page.get_by_role("searchbox", name="Search")).to_be_focused()


@pytest.mark.parametrize(
    ("key", "heading"),
    [
        ("h", "Home"),
        ("e", "Executions"),
        ("p", "Playground"),
        ("c", "Confirmations"),
        ("a", "Audit"),
        ("t", "Catalog"),
    ],
)
def test_g_and_a_letter_go_places(page: Page, key: str, heading: str) -> None:
    page.goto("/inbox/")
    page.keyboard.press("g")
    page.keyboard.press(key)
    expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()


def test_a_letter_alone_goes_nowhere(page: Page) -> None:
    page.goto("/inbox/")
    page.keyboard.press("e")
    page.keyboard.press("g")
    page.keyboard.press("x")
    page.keyboard.press("e")
    expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()


def test_a_question_mark_shows_the_help_and_escape_closes_it(page: Page) -> None:
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_).to_contain_text("Executions")
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()


def test_a_button_shows_the_help_too(page: Page) -> None:
    page.get_by_role("button", name="Keyboard shortcuts").click()
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    help_.get_by_role("button", name="Close").click()
    expect(help_).to_be_hidden()


def test_keys_are_turned_off_and_stay_off(page: Page) -> None:
    page.keyboard.press("?")
    page.get_by_label("Keys do this in this browser").uncheck()
    page.reload()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search")).not_to_be_focused()


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_javascript_no_button_promises_keys(page: Page) -> None:
    expect(page.get_by_role("button", name="Keyboard shortcuts")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_the_menu_of_a_phone_is_walked_by_keyboard(page: Page) -> None:
    page.get_by_text("Menu", exact=True).focus()
    page.keyboard.press("Enter")
    menu = page.get_by_role("navigation", name="Main menu")
    expect(menu.get_by_role("group", name="Sources")).to_be_visible()
    page.keyboard.press("Tab")
    expect(menu.get_by_role("link").first).to_be_focused()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0


def test_what_is_said_is_also_shown(page: Page) -> None:
    page.get_by_role("switch", name="read_file enabled").click()
    expect(page.locator("#said.toast")).to_have_text("read_file is disabled.")
