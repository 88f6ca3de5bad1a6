"""Open pages follow what happens, say when they cannot, and mend themselves."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from config.local import orphans
from tests import crib as cribs
from tests import factories
from tests.browser.conftest import context_of
from tests.browser.test_pages import BARE, PHONE, mark, marked
from tests.tools.approval_requests import call_awaiting_approval
from tools.accounts.callers import caller_of_user
from tools.catalog.signatures.drift import note_upstream
from tools.execution import answer, events
from tools.models import Agent, Execution, Organization, Tool, UpstreamChange, User

pytestmark = pytest.mark.part("browser")

# With a stream a page asks once in a minute by itself: what is there sooner came with an event.
NOTIFIED_MS = 10_000


@pytest.fixture
def lasting(chromium: Browser, crib: cribs.Crib, administrator: User) -> Iterator[Page]:
    """A page that may complain of a server that is away."""
    context = context_of(administrator, chromium, crib)
    yield context.new_page()
    context.close()


def hears(page: Page, *, soon: bool = True) -> None:
    state = "open" if soon else "none"
    page.locator(f"html[data-stream={state}]").wait_for(state="attached", timeout=30_000)


def live_process(crib: cribs.Crib) -> orphans.Process:
    """The first of its session."""
    found = orphans.survivors(crib.data / "processes.json")
    live = b"tools.live.app:application"
    words = {one.pid: Path(f"/proc/{one.pid}/cmdline").read_bytes() for one in found}
    return next(one for one in found if one.pid == one.session and live in words[one.pid])


def test_a_call_appears_in_the_list_without_a_reload(page: Page, caller: Agent) -> None:
    page.goto("/executions/")
    hears(page)
    mark(page)
    execution = factories.execution(caller)
    expect(page.locator(f"#row-{execution.pk}")).to_be_visible(timeout=NOTIFIED_MS)
    assert marked(page)


def test_a_call_ends_on_its_own_page(page: Page, caller: Agent, administrator: User) -> None:
    execution = factories.execution(caller)
    page.goto(f"/executions/{execution.pk}/")
    hears(page)
    person = caller_of_user(administrator)
    answer.cancel(caller=person, execution=answer.find_execution(person, execution.pk))
    cancelled = page.locator("#moving .chip.big[data-status=Cancelled]")
    expect(cancelled).to_be_visible(timeout=NOTIFIED_MS)
    hears(page, soon=False)  # nothing is left to be followed


def test_the_queue_says_that_another_call_came(page: Page, place: Organization) -> None:
    factories.tool(place, requires_confirmation=True)
    page.goto("/confirmations/")
    hears(page)
    call_awaiting_approval(factories.agent(place))
    expect(page.locator("[data-note=queue-changed]")).to_be_visible(timeout=NOTIFIED_MS)


def test_a_page_says_that_it_is_not_live_and_mends_itself(
    lasting: Page, crib: cribs.Crib, caller: Agent
) -> None:
    lasting.goto("/executions/")
    hears(lasting)
    line = lasting.locator("#live-line:not(:empty)")
    os.killpg(live_process(crib).pid, signal.SIGKILL)
    expect(line).to_be_visible()
    execution = factories.execution(caller)
    expect(lasting.locator(f"#row-{execution.pk}")).to_be_visible()  # it asks meanwhile
    expect(line).to_have_count(0, timeout=40_000)
    hears(lasting)


def test_a_hidden_page_lets_go_and_catches_up(page: Page, caller: Agent) -> None:
    page.goto("/executions/")
    hears(page)
    _show(page, hidden=True)
    hears(page, soon=False)
    execution = factories.execution(caller)
    _show(page, hidden=False)
    expect(page.locator(f"#row-{execution.pk}")).to_be_visible(timeout=NOTIFIED_MS)
    hears(page)


def _show(page: Page, *, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_thousand_changes_are_few_questions(page: Page, caller: Agent) -> None:
    page.goto("/executions/")
    hears(page)
    execution = factories.execution(caller)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(1_000):
        events.notify_pages(execution.pk)
    last = factories.execution(caller)
    expect(page.locator(f"#row-{last.pk}")).to_be_visible(timeout=NOTIFIED_MS)
    assert 1 <= len(asked) <= 5


@pytest.mark.parametrize("page", [BARE], indirect=True)
def test_without_javascript_a_reload_shows_what_happened(page: Page, caller: Agent) -> None:
    page.goto("/executions/")
    execution: Execution = factories.execution(caller)
    page.locator("#results noscript a").click()
    expect(page.locator(f"#row-{execution.pk}")).to_be_visible()


@pytest.fixture
def change(place: Organization) -> UpstreamChange:
    tool = factories.tool(place)
    assert tool.version is not None
    seen = tool.version.definition | {"description": "Re\u0430ds\u3164 it."}
    change = note_upstream(tool=tool, seen=seen, by=factories.actor(place))
    assert change is not None
    return change


@pytest.mark.parametrize("page", [PHONE | BARE], indirect=True)
def test_a_change_is_read_and_approved_on_a_phone_without_javascript(
    change: UpstreamChange, page: Page
) -> None:
    page.goto("/changes/")
    page.get_by_role("link", name="echo").click()
    expect(page.locator("mark", has_text="U+3164").first).to_be_visible()
    page.locator("[name=word][value=approve]").click()
    expect(page.locator("[data-note=message-success]")).to_contain_text("1.0.1")
    assert Tool.objects.get(pk=change.tool_id).status == "active"


def test_the_lists_change_without_a_reload(change: UpstreamChange, page: Page) -> None:
    page.goto("/changes/")
    page.evaluate("document.body.dataset.mark = 'kept'")
    page.locator("#state-rejected").click()
    expect(page.locator("[data-note=none-rejected]")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/changes/\?state=rejected$"))
    assert page.evaluate("document.body.dataset.mark === 'kept'")
    page.go_back()
    expect(page.locator("#results")).to_contain_text("echo")


def test_a_lost_connection_is_said_and_so_is_that_it_is_back(
    chromium: Browser, crib: cribs.Crib, administrator: User
) -> None:
    page = context_of(administrator, chromium, crib).new_page()
    page.goto("/executions/")
    page.context.set_offline(True)
    expect(page.locator("#notice [data-note=no-answer]")).to_be_visible(timeout=15_000)
    page.context.set_offline(False)
    expect(page.locator("#notice")).to_be_empty(timeout=15_000)
    page.context.close()
