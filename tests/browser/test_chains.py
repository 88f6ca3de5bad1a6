"""A chain as a person writes, rehearses, runs and watches it, as `docs/chains.md` has it."""

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import crib as cribs
from tests import factories
from tests.browser.conftest import context_of
from tests.browser.test_pages import PHONE, mark, marked
from tests.crib import CHECKOUT
from tests.stubs.web import Reply, serving
from tools.accounts.account_actions import set_allowed_hosts
from tools.catalog.sandbox.content_schemas import create_schema
from tools.messaging.message_channels import create_channel
from tools.models import Organization, User

pytestmark = pytest.mark.part("browser")

EXAMPLE = (CHECKOUT / "examples" / "keep_elements.yaml").read_text("utf-8")
DESK = {"viewport": {"width": 1440, "height": 900}}
ELEMENTS = [
    {"name": "Oxygen", "symbol": "O", "number": 8},
    {"name": "Xenon", "symbol": "Xe", "number": 54},
]
SCHEMA = {
    "type": "array",
    "items": {"type": "object", "required": ["name", "symbol", "number"]},
}


@pytest.fixture
def fetched(place: Organization, administrator: User) -> Iterator[str]:
    """What the chain stands on; the address of the list."""
    by = factories.actor(place)
    schema = {"name": "elements", "document": SCHEMA}
    create_schema(organization=place, schema=schema, by=by)
    channel = {"name": "team", "kind": "inbox", "recipients": [administrator.username]}
    create_channel(organization=place, channel=channel, by=by)
    with serving() as web:
        kind = [("Content-Type", "application/json")]
        web.replies["/list.json"] = Reply(headers=kind, body=json.dumps(ELEMENTS).encode())
        hosts = [{"host": "127.0.0.1", "ports": [web.port]}]
        set_allowed_hosts(organization=place, hosts=hosts, by=by)
        yield web.url("/list.json")


@pytest.fixture
def colleague(chromium: Browser, crib: cribs.Crib, place: Organization) -> Iterator[Page]:
    """A second person, in a browser of their own."""
    context = context_of(factories.superuser(place), chromium, crib)
    yield context.new_page()
    context.close()


def written(page: Page, administrator: User) -> None:
    """At `/chains/new/`, with an error that is shown while it is typed, and its correction."""
    text = EXAMPLE.replace("to: [admin]", f"to: [{administrator.username}]")
    page.goto("/chains/new/")
    mark(page)
    page.locator("[name=text]").fill(text.replace("web_fetch", "web_fetsh"))
    expect(page.locator("#checked [data-note=remark]", has_text="web_fetsh").first).to_be_visible()
    page.locator("#checked [data-line='9']").click()
    chosen = "document.getSelection().toString()"
    assert page.evaluate(chosen).strip() == "tool_name: web_fetsh"
    page.keyboard.insert_text("    tool_name: web_fetch")
    expect(page.locator("#checked [data-note=can-be-kept]")).to_be_visible()
    expect(page.locator(".flow.chain .at[data-kind=step]")).to_have_count(5)
    assert marked(page)
    page.locator("form.chain-form button.primary").click()


def step(page: Page, name: str, status: str, done: str = "") -> None:
    """The drawing comes to say so of the step; of a loop also how many of its calls are done."""
    own = page.locator(".id", has_text=re.compile(f"^{name}$"))
    box = page.locator(f".flow.chain .at[data-status={status}]", has=own)
    expect(box.locator(".status")).to_contain_text(done)


def fits(page: Page) -> bool:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    return bool(page.evaluate(wide) == 0)


@pytest.mark.parametrize("page", [DESK, PHONE], indirect=True, ids=["at a desk", "on a phone"])
def test_a_chain_is_written_rehearsed_run_and_watched(
    page: Page, fetched: str, colleague: Page, administrator: User
) -> None:
    written(page, administrator)
    page.locator(".tabs a[href$='/call/']").click()
    page.locator("[name='p.url']").fill(fetched)
    page.locator("[name='p.ask']").fill("xenon")
    page.locator("#rehearse").click()
    expect(page.locator(".rehearsal [data-note=needs-approval]")).to_be_visible()
    expect(page.locator(".rehearsal [data-code]")).to_have_count(0)
    assert fits(page)
    page.locator("#run").click()
    page.locator("#answer .result-line a").click()
    expect(page.locator(".chip.big[data-status=Running]")).to_be_visible()
    mark(page)
    step(page, "keep", "Success", done="2")
    step(page, "tell", "RequiresConfirmation")
    assert fits(page)
    colleague.goto("/confirmations/")
    colleague.locator("[name=one][value^=approve]").click()
    step(page, "tell", "Success")
    expect(page.locator(".chip.big[data-status=Success]")).to_be_visible()
    expect(page.locator("pre.output")).to_have_text("Xenon")
    assert marked(page)
    page.goto("/inbox/")
    expect(page.locator("main")).to_contain_text("1 found for xenon")
    assert fits(page)
