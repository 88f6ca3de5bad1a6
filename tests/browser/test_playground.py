"""The form of a call and its JSON follow each other, and what is copied is what stands there."""

import json

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
    return page.get_by_label("Parameters as JSON").input_value()


@pytest.mark.usefixtures("joke")
def test_the_form_and_the_json_follow_each_other(page: Page) -> None:
    page.goto("/playground/?tool=joke")
    page.get_by_label("text string").fill('knock "knock"\\')
    page.get_by_label("count integer").fill("+7")
    page.get_by_label("exact number").fill("1.0")
    page.get_by_label("loud boolean").select_option("true")
    page.get_by_label("tags array").fill('["a", {"b": 2}]')
    assert json.loads(raw(page)) == {
        "text": 'knock "knock"\\', "count": 7, "exact": 1.0, "loud": True, "tags": ["a", {"b": 2}],
    }  # fmt: skip
    assert '"exact": 1.0' in raw(page)
    expect(page.get_by_label("Send the form")).to_be_checked()
    page.get_by_label("Parameters as JSON").fill('{"text": "who is there?", "loud": false}')
    expect(page.get_by_label("text string")).to_have_value("who is there?")
    expect(page.get_by_label("loud boolean")).to_have_value("false")
    expect(page.get_by_label("count integer")).to_have_value("")
    expect(page.get_by_label("Send the JSON")).to_be_checked()


@pytest.mark.usefixtures("joke")
def test_what_one_cannot_hold_leaves_the_other_as_it_is(page: Page) -> None:
    page.goto("/playground/?tool=joke")
    page.get_by_label("text string").fill("kept")
    page.get_by_label("count integer").fill("many")
    expect(page.get_by_text("A field of the form cannot be read yet")).to_be_visible()
    assert json.loads(raw(page)) == {"text": "kept"}
    page.get_by_label("Parameters as JSON").fill("{")
    expect(page.get_by_text("This is no JSON yet")).to_be_visible()
    expect(page.get_by_label("text string")).to_have_value("kept")
    page.get_by_label("Parameters as JSON").fill('{"text": 7}')
    expect(page.get_by_text("The form cannot hold all of this")).to_be_visible()
    page.get_by_label("Parameters as JSON").fill('{"text": "fits", "__proto__": 1}')
    expect(page.get_by_label("text string")).to_have_value("fits")


@pytest.mark.usefixtures("joke")
@pytest.mark.parametrize("page", [{}, PHONE], indirect=True)
def test_a_call_as_an_agent_is_answered_on_the_page_and_made_again(page: Page) -> None:
    page.goto("/playground/")
    page.get_by_label("Tool").fill("joke")
    page.get_by_role("link", name="joke").click()
    page.get_by_label("Call as").select_option("comedian")
    expect(page.get_by_text("its budget pays")).to_be_visible()
    page.get_by_label("text string").fill("knock")
    page.get_by_role("button", name="Run joke").click()
    expect(page.get_by_text("HTTP 200 OK")).to_be_visible(timeout=20_000)
    expect(page.get_by_label("Body of the answer")).to_contain_text('"echo"')
    page.get_by_role("link", name="Load again").first.click()
    expect(page.get_by_label("Call as")).to_have_value("comedian")
    expect(page.get_by_label("text string")).to_have_value("knock")
    page.get_by_role("button", name="Run joke").click()
    expect(page.get_by_role("heading", name="Before and now")).to_be_visible(timeout=20_000)


@pytest.mark.usefixtures("joke")
@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_scripts_what_is_marked_is_sent(page: Page) -> None:
    page.goto("/playground/?tool=joke")
    page.get_by_label("text string").fill("of the form")
    page.get_by_label("Parameters as JSON").fill('{"text": "of the JSON"}')
    page.get_by_label("Send the JSON").check()
    page.get_by_label("Call as").select_option("comedian")
    page.get_by_role("button", name="Run joke").click()
    expect(page.get_by_label("Body of the answer")).to_contain_text("of the JSON")
    expect(page.get_by_label("text string")).to_have_value("of the JSON")
    expect(page.get_by_label("Call as")).to_have_value("comedian")
