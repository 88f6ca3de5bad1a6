"""The form of a call and its JSON follow each other, and what is copied is what stands there."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests import factories
from tests.browser.test_pages import BARE, PHONE
from tools.models import Organization

pytestmark = pytest.mark.part("browser")

FIELDS = [
    {"name": "text", "type": "String", "description": "d", "required": True},
    {"name": "count", "type": "Integer", "description": "d"},
    {"name": "exact", "type": "Number", "description": "d"},
    {"name": "loud", "type": "Boolean", "description": "d"},
    {"name": "tags", "type": "Array", "description": "d"},
]


@pytest.fixture
def joke(place: Organization) -> None:
    factories.tool(place, "joke", parameters=FIELDS)
    factories.agent(place, "comedian", groups=["default"])


def raw(page: Page) -> str:
    return page.locator("[name=raw]").input_value()


@pytest.mark.usefixtures("joke")
def test_the_form_and_the_json_follow_each_other(page: Page) -> None:
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill('knock "knock"\\')
    page.locator("[name='p.count']").fill("+7")
    page.locator("[name='p.exact']").fill("1.0")
    page.locator("[name='p.loud']").select_option("true")
    page.locator("[name='p.tags']").fill('["a", {"b": 2}]')
    assert json.loads(raw(page)) == {
        "text": 'knock "knock"\\', "count": 7, "exact": 1.0, "loud": True, "tags": ["a", {"b": 2}],
    }  # fmt: skip
    assert '"exact": 1.0' in raw(page)
    expect(page.locator("[name=sends][value=form]")).to_be_checked()
    page.locator("[name=raw]").fill('{"text": "who is there?", "loud": false}')
    expect(page.locator("[name='p.text']")).to_have_value("who is there?")
    expect(page.locator("[name='p.loud']")).to_have_value("false")
    expect(page.locator("[name='p.count']")).to_have_value("")
    expect(page.locator("[name=sends][value=json]")).to_be_checked()


@pytest.mark.usefixtures("joke")
def test_what_one_cannot_hold_leaves_the_other_as_it_is(page: Page) -> None:
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill("kept")
    page.locator("[name='p.count']").fill("many")
    expect(page.locator("[data-note=form-unreadable]")).to_be_visible()
    assert json.loads(raw(page)) == {"text": "kept"}
    page.locator("[name=raw]").fill("{")
    expect(page.locator("[data-note=json-unreadable]")).to_be_visible()
    expect(page.locator("[name='p.text']")).to_have_value("kept")
    page.locator("[name=raw]").fill('{"text": 7}')
    expect(page.locator("[data-note=form-cannot-hold]")).to_be_visible()
    page.locator("[name=raw]").fill('{"text": "fits", "__proto__": 1}')
    expect(page.locator("[name='p.text']")).to_have_value("fits")


@pytest.mark.usefixtures("joke")
@pytest.mark.parametrize("page", [{}, PHONE], indirect=True)
def test_a_call_as_an_agent_is_answered_on_the_page_and_made_again(page: Page) -> None:
    page.goto("/playground/")
    page.locator("#q").fill("joke")
    page.locator("#found a[href='/tools/joke/call/']").click()
    page.locator("#as").select_option("comedian")
    expect(page.locator("[data-note=as-agent]")).to_be_visible()
    page.locator("[name='p.text']").fill("knock")
    page.locator("#run").click()
    expect(page.locator("#answer .chip.big")).to_contain_text("200", timeout=20_000)
    expect(page.locator("[data-note=body]")).to_contain_text('"echo"')
    page.locator(".call-history a[href*='?from=']").first.click()
    expect(page.locator("#as")).to_have_value("comedian")
    expect(page.locator("[name='p.text']")).to_have_value("knock")
    page.locator("#run").click()
    expect(page.locator("#compared")).to_be_visible(timeout=20_000)


@pytest.mark.usefixtures("joke")
@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_scripts_what_is_marked_is_sent(page: Page) -> None:
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill("of the form")
    page.locator("[name=raw]").fill('{"text": "of the JSON"}')
    page.locator("[name=sends][value=json]").check()
    page.locator("#as").select_option("comedian")
    page.locator("#run").click()
    expect(page.locator("[data-note=body]")).to_contain_text("of the JSON")
    expect(page.locator("[name='p.text']")).to_have_value("of the JSON")
    expect(page.locator("#as")).to_have_value("comedian")


DENIED = "navigator.clipboard.writeText = () => Promise.reject(new DOMException('no'));"


def copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


@pytest.mark.usefixtures("joke")
def test_what_is_copied_is_what_stands_there(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill("knock")
    page.locator("#write").click()
    page.locator("[data-copies-text=snippet-curl]").click()
    expect(page.locator("#toast[data-note=copied]")).to_be_visible()
    assert copied(page) == page.locator("#snippet-curl").text_content()
    page.goto("/executions/?status=failed")
    page.locator("[data-copies-address]").click()
    expect(page.locator("#toast[data-note=copied]")).to_be_visible()
    assert copied(page) == page.url


@pytest.mark.usefixtures("joke")
def test_without_the_clipboard_the_page_is_not_left_and_the_text_is_selected(page: Page) -> None:
    page.add_init_script(DENIED)
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill("knock")
    page.locator("#write").click()
    page.locator("[data-copies-text=snippet-curl]").click()
    expect(page.locator("#toast[data-note=not-copied]")).to_be_visible()
    assert page.evaluate("getSelection().toString()") == (
        page.locator("#snippet-curl").text_content()
    )
    expect(page.locator("[name='p.text']")).to_have_value("knock")
    page.goto("/executions/?status=failed")
    page.evaluate("window.here = true")
    page.locator("[data-copies-address]").click()
    expect(page.locator("#toast[data-note=not-copied]")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/executions/\?status=failed$"))
    assert page.evaluate("window.here")


@pytest.mark.usefixtures("joke")
@pytest.mark.parametrize("page", [{}, BARE], indirect=True)
def test_a_reload_shows_the_call_and_makes_none(page: Page, place: Organization) -> None:
    page.goto("/tools/joke/call/")
    page.locator("[name='p.text']").fill("knock")
    page.locator("#run").click()
    expect(page.locator("[data-note=body]")).to_contain_text("knock")
    page.reload()
    expect(page.locator("[data-note=body]")).to_contain_text("knock")
    expect(page.locator("[name='p.text']")).to_have_value("knock")
    assert place.executions.filter(tool_name="joke").count() == 1
