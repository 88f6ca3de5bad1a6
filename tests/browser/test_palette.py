"""Going places by their names: with the keyboard alone, and without JavaScript."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.test_pages import BARE, PHONE

pytestmark = pytest.mark.part("browser")


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
    expect(page.locator("#goals-said[data-note=nothing-found]")).not_to_be_empty()
    page.locator("#go-to").fill("catalog")
    expect(page.locator("#goals-said[data-note=found]")).to_contain_text(re.compile("[1-9]"))


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
    page.locator(".goals a[href='/tools/read_file/']").click()
    expect(page).to_have_url("/tools/read_file/")


def test_the_help_names_it(page: Page) -> None:
    page.keyboard.press("?")
    expect(page.locator("#shortcuts a[href='/search/']")).to_be_visible()
