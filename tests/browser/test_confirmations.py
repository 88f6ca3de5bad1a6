"""The queue of held calls in a real browser."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests import factories
from tests.tools.approval_requests import call_awaiting_approval
from tools.models import Agent, Confirmation, Organization

pytestmark = pytest.mark.part("browser")

PHONE = {"viewport": {"width": 390, "height": 844}}
BARE = {"java_script_enabled": False}


@pytest.fixture
def worker(place: Organization) -> Agent:
    """An agent whose calls all need a person."""
    factories.tool(place, requires_confirmation=True)
    return factories.agent(place)


def status(confirmation: Confirmation) -> str:
    return Confirmation.objects.get(pk=confirmation.pk).status


@pytest.mark.parametrize("page", [{}, BARE], indirect=True, ids=["scripted", "without JavaScript"])
def test_calls_are_picked_and_decided_together(page: Page, worker: Agent) -> None:
    first, second = call_awaiting_approval(worker), call_awaiting_approval(worker)
    page.goto("/confirmations/")
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.locator("[name=reason]").fill("Not now.")
    page.locator("[name=many][value=reject]").click()
    expect(page.locator(".banner[data-tone=good]")).to_have_count(2)
    assert [status(one) for one in (first, second)] == ["rejected", "rejected"]


def test_the_enter_key_decides_nothing(page: Page, worker: Agent) -> None:
    confirmation = call_awaiting_approval(worker)
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    for address in ("/confirmations/", f"/confirmations/{confirmation.pk}/"):
        page.goto(address)
        page.locator("input[name^='reason.']").press("Enter")
        page.evaluate("fetch('/healthz').then(answer => answer.text())")
    assert "POST" not in sent and status(confirmation) == "pending"


def test_screen_readers_announce_another_call(page: Page, worker: Agent) -> None:
    call_awaiting_approval(worker)
    page.goto("/confirmations/")
    page.locator("input[name^='reason.']").fill("half a sen")
    call_awaiting_approval(worker)
    expect(page.locator("[data-note=queue-changed]")).to_be_visible(timeout=20_000)
    assert page.locator("input[name^='reason.']").input_value() == "half a sen"


@pytest.mark.parametrize("page", [PHONE], indirect=True)
def test_it_fits_a_phone_whatever_the_arguments(page: Page, worker: Agent) -> None:
    confirmation = call_awaiting_approval(worker, text="\u202e" + "x" * 3_000)
    for address in ("/confirmations/", f"/confirmations/{confirmation.pk}/"):
        page.goto(address)
        expect(page.locator("mark").first).to_have_text("U+202E")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_batch_is_approved_by_keys(page: Page, worker: Agent) -> None:
    first, second, third = (
        call_awaiting_approval(worker),
        call_awaiting_approval(worker),
        call_awaiting_approval(worker),
    )
    page.goto("/confirmations/")
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    expect(page.locator(".pick input:checked")).to_have_count(2)
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve picked")).to_be_focused()
    assert {status(one) for one in (first, second, third)} == {"pending"}
    page.keyboard.press("Enter")
    expect(page.locator(".banner[data-tone=good]")).to_have_count(2)
    assert [status(one) for one in (first, second, third)] == ["approved", "approved", "pending"]


def test_a_call_is_refused_by_keys_with_a_reason(page: Page, worker: Agent) -> None:
    first, second = call_awaiting_approval(worker), call_awaiting_approval(worker)
    page.goto("/confirmations/")
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.press("Enter")  # without a reason it does nothing
    page.keyboard.type("Not today, a")
    page.keyboard.press("Enter")
    expect(page.locator(".banner[data-tone=good]")).to_have_count(1)
    assert [status(one) for one in (first, second)] == ["rejected", "pending"]
    assert Confirmation.objects.get(pk=first.pk).decisions.get().reason == "Not today, a"


def test_one_card_is_decided_and_the_others_keep_what_was_typed(page: Page, worker: Agent) -> None:
    first, second = call_awaiting_approval(worker), call_awaiting_approval(worker)
    page.goto("/confirmations/")
    page.locator(f"#reason-{second.pk}").fill("I have to ask first")
    page.locator(f"button[value='approve {first.pk}']").click()
    expect(page.locator("article[data-decided]")).to_be_focused()
    expect(page.locator(f"#reason-{second.pk}")).to_have_value("I have to ask first")
    assert [status(one) for one in (first, second)] == ["approved", "pending"]
    page.locator(f"button[value='reject {second.pk}']").click()
    expect(page.locator("[data-decided]")).to_have_count(2)
    expect(page.locator("[data-note=queue-changed]")).to_have_count(0)
    assert Confirmation.objects.get(pk=second.pk).decisions.get().reason == "I have to ask first"


def test_a_call_is_opened_by_keys_and_keys_that_lead_elsewhere_decide_nothing(
    page: Page, worker: Agent
) -> None:
    confirmation = call_awaiting_approval(worker)
    page.goto("/confirmations/")
    page.keyboard.press("a")  # at no call
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/confirmations/{confirmation.pk}/$"))
    page.keyboard.press("g")
    page.keyboard.press("a")
    expect(page).to_have_url(re.compile("/audit/$"))
    assert status(confirmation) == "pending"


def test_the_help_names_the_keys_and_the_time_left_runs(page: Page, worker: Agent) -> None:
    call_awaiting_approval(worker)
    page.goto("/confirmations/")
    left = page.locator("time[data-until]")  # its text from the server says "minutes"
    expect(left).to_have_text(re.compile("^in 14 min$"))
    page.keyboard.press("?")
    keys = page.locator("#shortcuts [data-note=confirmation-keys]")
    expect(keys.get_by_text("a", exact=True)).to_be_visible()
