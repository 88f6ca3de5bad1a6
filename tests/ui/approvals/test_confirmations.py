"""The queue of held calls: everything to be read, nothing hidden, decided without JavaScript."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.models import AuditRecord
from tests import factories
from tests.tools.approval_requests import approve, approver, at_the_browser, call_awaiting_approval
from tests.ui.conftest import Grant
from tests.ui.pages import notes, text
from tools.approvals import decisions
from tools.execution import answer as actions
from tools.models import Agent, Confirmation, Organization, Tool
from tools.ui.approvals.confirmations import MOST_CHARACTERS
from tools.ui.display import mixed_words, visible_pieces

ADDRESS = "/confirmations/"


@pytest.fixture
def browser(client_of: Grant) -> Client:
    return client_of("tools.decide_confirmation")


def fields(client: Client) -> dict[str, str]:
    """What the form on the page would send, whatever button is pressed."""
    found = re.findall(
        r'<input type="hidden" name="([^"]+)" value="([^"]*)">', text(client.get(ADDRESS))
    )
    return {name: unescape(value) for name, value in found}


def press(client: Client, **more: Any) -> str:
    answer = client.post(f"{ADDRESS}decide", fields(client) | more)
    assert answer.status_code == 302 and answer["Location"] == ADDRESS
    return text(client.get(ADDRESS))


def status(confirmation: Confirmation) -> str:
    return Confirmation.objects.get(pk=confirmation.pk).status


def test_the_queue_shows_who_what_why_and_until_when(
    browser: Client, agent: Agent, confirmation: Confirmation
) -> None:
    page = text(browser.get(ADDRESS))
    assert agent.slug in page and "echo" in page
    assert notes(page)["reason"] == confirmation.reasons and len(notes(page)["expires"]) == 1
    assert confirmation.bound_hash in page and "&quot;text&quot;: &quot;x&quot;" in page


def test_a_call_is_approved_by_its_own_button(browser: Client, confirmation: Confirmation) -> None:
    page = press(browser, one=f"approve {confirmation.pk}")
    assert status(confirmation) == "approved"
    assert "echo" in notes(page)["message-success"][0] and "nothing-waits" in notes(page)


def test_a_call_is_rejected_with_a_reason(browser: Client, confirmation: Confirmation) -> None:
    reason = {f"reason.{confirmation.pk}": "Not today."}
    page = press(browser, one=f"reject {confirmation.pk}", **reason)
    assert status(confirmation) == "rejected"
    assert "Not today." in page and "echo" in notes(page)["message-success"][0]


def test_many_that_were_picked_are_decided_at_once(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    first, second, third = (
        call_awaiting_approval(agent),
        call_awaiting_approval(agent),
        call_awaiting_approval(agent),
    )
    press(browser, many="approve", pick=[str(first.pk), str(second.pk)])
    assert [status(one) for one in (first, second, third)] == ["approved", "approved", "pending"]


def test_each_is_decided_with_the_hash_it_was_shown_with(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    first, second = call_awaiting_approval(agent), call_awaiting_approval(agent)
    swapped = {f"hash.{first.pk}": second.bound_hash}
    page = press(browser, many="approve", pick=[str(first.pk), str(second.pk)], **swapped)
    assert [status(one) for one in (first, second)] == ["pending", "approved"]
    assert (
        len(notes(page)["message-error"]) == 1 and "bound_hash" in notes(page)["message-error"][0]
    )


@pytest.mark.parametrize("forged", [{}, {"shown_at": "x"}])
def test_how_long_it_was_on_the_screen_is_on_record_unless_it_is_forged(
    browser: Client, confirmation: Confirmation, forged: dict[str, str]
) -> None:
    press(browser, one=f"approve {confirmation.pk}", **forged)
    record = AuditRecord.objects.get(execution_id=confirmation.execution_id, code="CONFIRM.APPROVE")
    shown = record.details["displayed_s"]
    assert shown is None if forged else 0 <= shown < 60


WRONG: list[dict[str, Any]] = [
    {}, {"one": "x"}, {"one": "approve x"}, {"one": "approve"}, {"many": "x", "pick": ["y"]},
    {"many": "approve", "pick": ["\x00"]}, {"many": "approve", "pick": ["x"] * 101},
]  # fmt: skip


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("given", WRONG)
def test_a_form_that_cannot_be_meant_decides_nothing(
    browser: Client, confirmation: Confirmation, given: dict[str, Any]
) -> None:
    assert browser.post(f"{ADDRESS}decide", given).status_code == 400
    assert status(confirmation) == "pending"


def test_nothing_picked_decides_nothing(browser: Client, confirmation: Confirmation) -> None:
    assert "message-warning" in notes(press(browser, many="approve"))
    assert status(confirmation) == "pending"


def test_the_enter_key_decides_nothing(browser: Client, confirmation: Confirmation) -> None:
    for address in (ADDRESS, f"{ADDRESS}{confirmation.pk}/"):
        form = text(browser.get(address)).partition("/confirmations/decide")[2]
        assert form.index('<button class="visually-hidden" disabled') < form.index(
            '<button class="primary"'
        )


def test_long_arguments_are_decided_where_they_stand_whole(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    long = call_awaiting_approval(agent, text="a" * MOST_CHARACTERS + "THE END")
    page = text(browser.get(ADDRESS))
    assert "THE END" not in page and f"approve {long.pk}" not in page and str(long.pk) in page
    assert f'name="pick" value="{long.pk}"' not in page
    whole = text(browser.get(f"{ADDRESS}{long.pk}/"))
    assert "THE END" in whole and f"approve {long.pk}" in whole


HIDDEN = {
    "right to left": ("a\u202eb", "U+202E"),
    "zero width": ("a\u200bb", "U+200B"),
    "a tag": ("a\U000e0041b", "U+E0041"),
    "soft hyphen": ("a\u00adb", "U+00AD"),
    "no-break space": ("a\u00a0b", "U+00A0"),
    "a filler": ("a\u3164b", "U+3164"),
    "a selector": ("a\ufe0fb", "U+FE0F"),
    "C1": ("a\u0085b", "U+0085"),
    "a private one": ("a\ue000b", "U+E000"),
    "line separator": ("a\u2028b", "U+2028"),
}


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(("value", "shown"), HIDDEN.values(), ids=HIDDEN)
def test_what_cannot_be_seen_is_named(
    browser: Client, agent: Agent, asks: Tool, value: str, shown: str
) -> None:
    confirmation = call_awaiting_approval(agent, text=value)
    for address in (ADDRESS, f"{ADDRESS}{confirmation.pk}/"):
        page = text(browser.get(address))
        assert re.search(rf'<mark title="[^"]*">{re.escape(shown)}</mark>', page)
        assert value not in page
        assert "1" in notes(page)["hidden-characters"][0].split()


def test_what_can_be_seen_is_shown_as_it_is() -> None:
    plain = 'Grüße, 日本語, العربية, emoji 🙂 and "quotes"\n'
    assert [piece.text for piece in visible_pieces(plain)] == [plain]
    assert "".join(piece.text for piece in visible_pieces("a\u200bb")) == "aU+200Bb"
    assert visible_pieces("") == []


def test_words_of_several_alphabets_are_reported(browser: Client, agent: Agent, asks: Tool) -> None:
    assert mixed_words("p\u0430ypal.com Привет hello") == ["p\u0430ypal"]
    call_awaiting_approval(agent, text="p\u0430ypal.com")
    assert "p\u0430ypal" in notes(browser.get(ADDRESS))["mixed-alphabets"][0]


def test_a_persons_own_call_is_shown_without_a_button(person: Any, browser: Client) -> None:
    factories.permit(person, "execute_tool")
    factories.tool(person.organization, requires_confirmation=True)
    caller = at_the_browser(person)
    call = factories.call("echo", {"text": "x"})
    execution = actions.execute(caller=caller, call=call, wait_s=0)
    own = Confirmation.objects.get(execution=execution)
    page = text(browser.get(ADDRESS))
    refusal = decisions.obstacle(caller, own)
    assert refusal is not None and notes(page)["may-not-decide"] == [refusal.message]
    assert f"approve {own.pk}" not in page


def test_who_agreed_waits_for_another(
    browser: Client, person: Any, organization: Organization, agent: Agent
) -> None:
    tool = factories.tool(organization)
    tool.critical, tool.revision = True, Organization.objects.next_revision(organization.pk)
    tool.save()
    confirmation = call_awaiting_approval(agent)
    assert "0" in notes(browser.get(ADDRESS))["agreed"][0]
    page = press(browser, one=f"approve {confirmation.pk}")
    assert "may-not-decide" in notes(page) and "1" in notes(page)["agreed"][0]
    assert "echo" in notes(page)["message-success"][0]
    assert f"approve {confirmation.pk}" not in page


def test_what_was_decided_stands_below(
    browser: Client, organization: Organization, agent: Agent, asks: Tool
) -> None:
    other = approver(organization)
    approve(call_awaiting_approval(agent), other)
    page = text(browser.get(ADDRESS))
    assert "nothing-waits" in notes(page)
    assert 'data-status="approved"' in page and other.username in page


def test_what_is_overdue_waits_no_more(browser: Client, confirmation: Confirmation) -> None:
    Confirmation.objects.filter(pk=confirmation.pk).update(expires_at=timezone.now())
    assert "nothing-waits" in notes(browser.get(ADDRESS))
    assert "approve" not in text(browser.get(f"{ADDRESS}{confirmation.pk}/"))


@pytest.mark.part("matrices")
def test_the_queue_is_turned_by_pages(browser: Client, agent: Agent, asks: Tool) -> None:
    for _ in range(26):
        call_awaiting_approval(agent)
    page = text(browser.get(ADDRESS))
    assert page.count('name="pick"') == 25
    [older] = re.findall(r'rel="next" href="([^"]+)"', page)
    assert text(browser.get(unescape(older))).count('name="pick"') == 1
    assert browser.get(f"{ADDRESS}?page=2").status_code == 200  # as it was once
    assert browser.get(f"{ADDRESS}?page=x").status_code == 200


def test_the_page_says_when_the_queue_has_changed(
    browser: Client, agent: Agent, confirmation: Confirmation
) -> None:
    seen = re.findall(r"part=fresh&amp;seen=(\w+)", text(browser.get(ADDRESS)))[0]
    assert browser.get(f"{ADDRESS}?part=fresh&seen={seen}").status_code == 204
    call_awaiting_approval(agent)
    assert "queue-changed" in notes(browser.get(f"{ADDRESS}?part=fresh&seen={seen}"))


def test_the_navigation_counts_what_waits(browser: Client, confirmation: Confirmation) -> None:
    page = text(browser.get("/"))
    assert f'href="{ADDRESS}"' in page and re.search(r'class="approval-count"[^>]*>1<', page)


def test_who_may_only_look_gets_no_button(client_of: Grant, confirmation: Confirmation) -> None:
    client = client_of("tools.view_confirmation")
    for address in (ADDRESS, f"{ADDRESS}{confirmation.pk}/"):
        page = text(client.get(address))
        assert "echo" in page and 'name="one"' not in page and 'name="pick"' not in page


def test_rejecting_needs_a_reason(browser: Client, confirmation: Confirmation) -> None:
    """Review 1.16."""
    form = fields(browser) | {"one": f"reject {confirmation.pk}"}
    assert browser.post(f"{ADDRESS}decide", form).status_code == 400
    picked = fields(browser) | {"many": "reject", "pick": str(confirmation.pk), "reason": " "}
    assert browser.post(f"{ADDRESS}decide", picked).status_code == 400
    assert status(confirmation) == "pending"


def test_a_refused_rejection_shows_the_queue_again_with_all_that_was_typed(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    calls = [call_awaiting_approval(agent) for _ in range(3)]
    first, second, third = calls
    typed = {f"reason.{second.pk}": "Not <today>.", "pick": [str(third.pk)]}
    answer = browser.post(
        f"{ADDRESS}decide", fields(browser) | typed | {"one": f"reject {first.pk}"}
    )
    page = text(answer)
    assert answer.status_code == 400 and "refused" in notes(page)
    assert [name for name in notes(page) if name.startswith("flaw-")] == [f"flaw-reason.{first.pk}"]
    assert 'value="Not &lt;today&gt;."' in page
    assert re.findall(r'name="pick" value="([^"]+)" checked', page) == [str(third.pk)]
    again = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', page))
    sent = again | typed | {f"reason.{first.pk}": "No.", "one": f"reject {first.pk}"}
    assert browser.post(f"{ADDRESS}decide", sent).status_code == 302
    assert [status(one) for one in calls] == ["rejected", "pending", "pending"]


def test_many_are_rejected_with_a_reason_each_or_not_at_all(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    first, second = call_awaiting_approval(agent), call_awaiting_approval(agent)
    picked = {"many": "reject", "pick": [str(first.pk), str(second.pk)]}
    answer = browser.post(
        f"{ADDRESS}decide", fields(browser) | picked | {f"reason.{first.pk}": "No."}
    )
    assert answer.status_code == 400
    assert f"flaw-reason.{second.pk}" in notes(answer)
    assert f"flaw-reason.{first.pk}" not in notes(answer)
    assert [status(one) for one in (first, second)] == ["pending", "pending"]


def test_a_refused_rejection_leaves_the_reader_on_the_page_of_the_queue_or_of_the_call(
    browser: Client, agent: Agent, asks: Tool
) -> None:
    calls = [call_awaiting_approval(agent) for _ in range(27)]
    later = text(browser.get(ADDRESS, {"page": "2"}))
    [action] = re.findall(r'id="queue" method="post" action="([^"]+)"', later)
    again = browser.post(unescape(action), {"one": f"reject {calls[-1].pk}"})
    assert again.status_code == 400
    shown = [re.findall(r'name="hash.([^"]+)"', page) for page in (text(again), later)]
    assert len(shown[0]) == 2 and shown[0] == shown[1]
    assert f"flaw-reason.{calls[-1].pk}" in notes(again)
    one = text(browser.get(f"{ADDRESS}{calls[0].pk}/"))
    form = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', one))
    again = browser.post(f"{ADDRESS}decide", form | {"one": f"reject {calls[0].pk}"})
    assert again.status_code == 400 and 'id="queue"' not in text(again)
    assert f"flaw-reason.{calls[0].pk}" in notes(again)


def test_with_htmx_a_missing_reason_is_a_sentence_beside_the_card(
    browser: Client, confirmation: Confirmation
) -> None:
    form = fields(browser) | {"one": f"reject {confirmation.pk}"}
    answer = browser.post(f"{ADDRESS}decide", form, headers={"HX-Request": "true"})
    assert answer.status_code == 400 and "<html" not in text(answer)
    assert "Give a reason for the rejection" in text(answer)
