"""Attempts to bypass approval: none of them runs a call that was not approved."""

import threading
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from tests import factories
from tests.conditions import until
from tests.factories import definition
from tests.tools.approval_requests import (
    approve,
    approver,
    at_the_browser,
    attempted,
    call_awaiting_approval,
    codes,
    never_began,
    with_a_token,
    word,
)
from tests.tools.database import tamper
from tools.accounts import account_actions as policy
from tools.approvals import decisions
from tools.approvals.confirmation_rules import create_rule, delete_rule
from tools.catalog import actions as catalog
from tools.catalog.registry import registry
from tools.errors import Conflict, Forbidden, Mismatch, NotFound
from tools.execution import answer as actions
from tools.execution.perform import perform
from tools.licensing import tiers
from tools.models import (
    Confirmation,
    ConfirmationDecision,
    Execution,
    LicenseTier,
    Session,
    Token,
    User,
)
from tools.worker import reaper
from tools.workflows import session_actions


@pytest.fixture
def person(organization):
    return approver(organization)


def tool(organization):
    return catalog.find_tool(organization, "echo")


def mark_critical(organization):
    row = tool(organization)
    row.critical = True
    row.revision = type(organization).objects.next_revision(organization.pk)
    row.save()


def row_of(confirmation):
    return Execution.objects.filter(pk=confirmation.execution_id)


def let_go(confirmation):
    """Make the row pending, which requires direct access to the database."""
    row_of(confirmation).update(status="Pending")


def refused(caller, said):
    """The error code for which a decision is refused."""
    with pytest.raises((Conflict, Forbidden, NotFound)) as caught:
        decisions.decide(caller=caller, word=said)
    return caught.value.code


# --- who decides ----------------------------------------------------------------------------------


def of_the_agent(agent, organization):
    policy.set_grants(
        agent=agent, groups=["*"], tools=["*"], permissions=["*"], by=factories.actor(organization)
    )
    return factories.caller(agent)


def of_another_agent(agent, organization):
    other = factories.agent(organization)
    factories.permit(other.service_account, "decide_confirmation")
    return factories.caller(other)


@pytest.mark.parametrize(
    "caller_of",
    [
        of_the_agent,
        of_another_agent,
        pytest.param(lambda _, place: with_a_token(approver(place)), id="of a person who may"),
        pytest.param(
            lambda _, place: with_a_token(factories.superuser(place)), id="of a superuser"
        ),
    ],
)
def test_a_token_cannot_approve(agent, organization, confirmation, caller_of):
    assert refused(caller_of(agent, organization), word(confirmation)) == "session_required"
    assert never_began(attempted(confirmation.execution))


@pytest.mark.parametrize("codename", [None, "view_confirmation", "change_confirmation"])
def test_a_user_without_the_permission_cannot_approve(organization, confirmation, codename):
    user = factories.person(organization)
    if codename:
        factories.permit(user, codename)
    assert refused(at_the_browser(user), word(confirmation)) == "not_permitted"
    assert never_began(attempted(confirmation.execution))


@pytest.mark.parametrize("superuser", [True, False])
def test_a_user_cannot_approve_their_own_call(organization, person, admin_user, asks, superuser):
    user = admin_user if superuser else person
    factories.permit(user, "execute_tool")
    call = factories.call("echo", {"text": "x"})
    execution = actions.execute(caller=with_a_token(user), call=call, wait_s=0)
    own = Confirmation.objects.get(execution=execution)
    assert refused(at_the_browser(user), word(own)) == "own_call"
    assert never_began(attempted(execution))


def test_the_issuer_of_the_token_of_a_call_cannot_approve_it(agent, person, confirmation):
    Token.objects.filter(pk=confirmation.execution.token_id).update(issuer=person)
    assert refused(at_the_browser(person), word(confirmation)) == "own_token"
    assert never_began(attempted(confirmation.execution))


def test_a_user_of_another_organization_cannot_approve(confirmation):
    elsewhere = factories.organization(f"org-{uuid4().hex[:12]}")
    stranger = at_the_browser(approver(elsewhere))
    assert refused(stranger, word(confirmation)) == "confirmation_not_found"
    assert never_began(attempted(confirmation.execution))


def test_two_approvals_of_one_user_count_once(organization, agent, person):
    factories.tool(organization)
    mark_critical(organization)
    confirmation = approve(call_awaiting_approval(agent), person)
    assert refused(at_the_browser(person), word(confirmation)) == "already_decided"
    assert never_began(attempted(confirmation.execution))


def test_the_approval_of_a_user_who_was_removed_meanwhile_does_not_count(
    organization, agent, person
):
    factories.tool(organization)
    mark_critical(organization)
    confirmation = approve(call_awaiting_approval(agent), person)
    User.objects.filter(pk=person.pk).update(is_active=False)
    approve(confirmation, approver(organization))
    assert row_of(confirmation).get().status == "RequiresConfirmation"
    assert never_began(attempted(confirmation.execution))


@pytest.mark.parametrize(
    "loss", [{"is_active": False}, {"permission": "taken"}], ids=["removed", "permission taken"]
)
def test_an_approval_that_is_invalid_at_the_start_does_not_count(person, confirmation, loss):
    approve(confirmation, person)
    if "permission" in loss:
        person.user_permissions.clear()
    else:
        User.objects.filter(pk=person.pk).update(**loss)
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == ("confirmation_missing", True)


# --- what is approved -----------------------------------------------------------------------------


@pytest.mark.parametrize("shown", ["", "0" * 64, "A" * 64, "é" * 64, "another's"])
def test_the_hash_must_be_that_of_what_was_shown(agent, person, confirmation, shown):
    shown = (
        call_awaiting_approval(agent, text="other").bound_hash if shown == "another's" else shown
    )
    said = word(confirmation, bound_hash=shown)
    assert refused(at_the_browser(person), said) == "confirmation_changed"
    assert never_began(attempted(confirmation.execution))


def test_two_equal_calls_need_two_approvals(agent, person, confirmation):
    again = call_awaiting_approval(agent)
    assert again.bound_hash != confirmation.bound_hash
    approve(confirmation, person)
    assert never_began(attempted(again.execution))


def test_other_arguments_under_the_same_key_are_refused(agent, asks, person):
    caller = factories.caller(agent)
    call = factories.call("echo", {"text": "good"}, idempotency_key="k")
    execution = actions.execute(caller=caller, call=call, wait_s=0)
    approve(Confirmation.objects.get(execution=execution), person)
    with pytest.raises(Mismatch):
        actions.execute(
            caller=caller,
            call=factories.call("echo", {"text": "evil"}, idempotency_key="k"),
            wait_s=0,
        )
    assert Execution.objects.filter(organization=agent.organization).count() == 1


def test_the_same_key_requests_one_approval_and_runs_nothing(agent, asks):
    call = {"parameters": {"text": "x"}, "idempotency_key": "k"}
    caller = factories.caller(agent)
    first, again = (
        actions.execute(caller=caller, call=factories.call("echo", **call), wait_s=0)
        for _ in range(2)
    )
    assert first.pk == again.pk and again.status == "RequiresConfirmation"
    assert never_began(attempted(first))


STORED = {
    "parameters": {"parameters": {"text": "evil"}},
    "groups": {"requested_groups": ["*"]},
    "state": {"state": "elsewhere"},
    "options": {"options": {"timeout_s": None, "require_confirmation": True}},
    "more time": {"timeout_s": 29.5},
    "a lower price": {"cost": -0 + 3},
    "a key for the cache": {"parameters": {"text": "x", "more": 1}},
}


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("fields", STORED.values(), ids=STORED)
@pytest.mark.parametrize("when", ["before the yes", "after the yes"])
def test_what_is_changed_in_the_row_by_hand_does_not_run(agent, person, confirmation, fields, when):
    if when == "after the yes":
        approve(confirmation, person)
    row_of(confirmation).update(**fields)
    if when == "before the yes":
        assert refused(at_the_browser(person), word(confirmation)) == "confirmation_void"
    done = attempted(confirmation.execution)
    assert (done.status, never_began(done)) == ("PermissionDenied", True)
    assert Confirmation.objects.get(pk=confirmation.pk).status == "void"


def test_a_call_cannot_be_moved_to_another_account(agent, organization, person, confirmation):
    approve(confirmation, person)
    other = factories.agent(organization)
    row_of(confirmation).update(user=other.service_account, agent=other, token_id=None)
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == ("confirmation_changed", True)


@pytest.mark.parametrize("fields", [{"approvals_needed": 1}, {"expires_at": None}])
def test_the_terms_are_bound_too(organization, agent, person, fields):
    factories.tool(organization)
    mark_critical(organization)
    confirmation = call_awaiting_approval(agent)
    later = {"expires_at": timezone.now() + timedelta(days=9)} if "expires_at" in fields else fields
    Confirmation.objects.filter(pk=confirmation.pk).update(**later)
    assert refused(at_the_browser(person), word(confirmation)) == "confirmation_void"
    assert never_began(attempted(confirmation.execution))


BY_HAND = {
    "a decision": lambda asked, user: ConfirmationDecision.objects.create(
        confirmation=asked, user=user, approved=True
    ),
    "a status": lambda asked, _: Confirmation.objects.filter(pk=asked.pk).update(
        status="approved", decided_at=timezone.now()
    ),
    "no question": lambda asked, _: Confirmation.objects.filter(pk=asked.pk).delete(),
}


@pytest.mark.parametrize("write", BY_HAND.values(), ids=BY_HAND)
def test_an_approval_that_was_written_by_hand_is_not_enough(confirmation, admin_user, write):
    let_go(confirmation)
    write(confirmation, admin_user)
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == ("confirmation_missing", True)


@pytest.mark.parametrize(
    "options", [{}, {"require_confirmation": False}, {"require_confirmation": 0}]
)
def test_an_option_cannot_remove_the_requirement(agent, organization, options):
    factories.tool(organization)
    confirmation = call_awaiting_approval(agent, require_confirmation=True)
    row_of(confirmation).update(options=options, status="Pending")
    done = attempted(confirmation.execution)
    assert (done.status, never_began(done)) == ("PermissionDenied", True)


# --- what a caller may send -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"require_confirmation": False},
        {"context": {"confirmed": True, "approved_by": "admin"}},
        {"execution_id": "confirmed", "context": {"require_confirmation": False}},
    ],
)
def test_no_parameter_of_a_caller_avoids_the_approval(api, organization, asks, options):
    answer = api.execute("echo", {"text": "x"}, options=options)
    assert answer.status_code == 202 and answer.json()["status"] == "RequiresConfirmation"
    assert never_began(attempted(Execution.objects.get(pk=answer.json()["execution_id"])))


@pytest.mark.parametrize("field", ["confirmed", "confirmation", "skip_confirmation", "bound_hash"])
def test_an_unknown_field_is_an_error(api, asks, field):
    assert api.execute("echo", {"text": "x"}, options={field: True}).status_code == 400


# --- the execution pipeline -----------------------------------------------------------------------


def test_a_held_call_cannot_be_claimed(confirmation):
    assert factories.claim(confirmation.execution_id) is None
    perform(confirmation.execution_id)
    assert row_of(confirmation).get().status == "RequiresConfirmation"
    assert never_began(confirmation.execution)


def test_the_reaper_does_not_dispatch_a_call_that_awaits_approval(confirmation):
    long_ago = timezone.now() - timedelta(hours=1)
    row_of(confirmation).update(created_at=long_ago)
    assert confirmation.execution_id not in reaper.reap()
    assert never_began(attempted(confirmation.execution))


def test_a_row_that_was_released_by_hand_is_refused_at_the_claim(confirmation):
    let_go(confirmation)
    done = attempted(confirmation.execution)
    assert (done.status, done.error_code) == ("PermissionDenied", "confirmation_missing")
    assert codes(done) == ["TOOL.HELD", "CONFIRM.VOID", "TOOL.DENY"]
    assert never_began(done)


def test_an_approval_is_used_once(confirmation, person):
    approve(confirmation, person)
    Confirmation.objects.filter(pk=confirmation.pk).update(spent_at=timezone.now())
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == ("confirmation_spent", True)


@pytest.mark.parametrize("last_word", ["rejected", "expired", "void"])
def test_a_call_without_an_approval_does_not_run(confirmation, last_word):
    Confirmation.objects.filter(pk=confirmation.pk).update(
        status=last_word, decided_at=timezone.now()
    )
    let_go(confirmation)
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == (f"confirmation_{last_word}", True)


def test_a_replayed_approval_counts_once(confirmation, person):
    approve(confirmation, person)
    assert refused(at_the_browser(person), word(confirmation)) == "confirmation_decided"
    assert ConfirmationDecision.objects.filter(confirmation=confirmation).count() == 1


def test_an_approval_after_a_rejection_is_too_late(confirmation, person, organization):
    decisions.decide(caller=at_the_browser(person), word=word(confirmation, approve=False))
    other = at_the_browser(approver(organization))
    assert refused(other, word(confirmation)) == "confirmation_decided"
    assert never_began(attempted(confirmation.execution))


def test_an_approval_after_the_expiry_is_too_late(confirmation, person):
    Confirmation.objects.filter(pk=confirmation.pk).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )
    assert refused(at_the_browser(person), word(confirmation)) == "confirmation_expired"
    assert row_of(confirmation).get().error_code == "confirmation_expired"
    assert never_began(attempted(confirmation.execution))


def test_an_approval_after_a_cancellation_is_too_late(agent, confirmation, person):
    actions.cancel(caller=factories.caller(agent), execution=confirmation.execution)
    assert refused(at_the_browser(person), word(confirmation)) == "confirmation_void"
    assert never_began(attempted(confirmation.execution))


def test_a_cancellation_after_the_approval_revokes_it(agent, confirmation, person):
    approve(confirmation, person)
    actions.cancel(caller=factories.caller(agent), execution=confirmation.execution)
    done = attempted(confirmation.execution)
    assert (done.status, never_began(done)) == ("Cancelled", True)
    assert Confirmation.objects.get(pk=confirmation.pk).status == "void"


# --- changes between the request and the start ---------------------------------------------------

CHANGES = {
    "the tool was changed": lambda a, o: catalog.update_tool(
        tool=tool(o),
        definition=definition(requires_confirmation=True, description="Other."),
        by=factories.actor(o),
    ),
    "the tool needs nobody any more": lambda a, o: catalog.update_tool(
        tool=tool(o), definition=definition(), by=factories.actor(o)
    ),
    "the tool was disabled": lambda a, o: catalog.set_enabled(
        tool=tool(o), enabled=False, by=factories.actor(o)
    ),
    "the tool was deleted": lambda a, o: catalog.delete_tool(tool=tool(o), by=factories.actor(o)),
    "another tool took its name": lambda a, o: (
        catalog.delete_tool(tool=tool(o), by=factories.actor(o)),
        factories.tool(o, requires_confirmation=True),
    ),
    "its definition was tampered with": lambda a, o: (
        tamper(tool(o).version, implementation={"source": "def main(p): return 'evil'"}),
        registry.forget(),
    ),
    "the group was taken away": lambda a, o: policy.set_grants(
        agent=a, groups=[], by=factories.actor(o)
    ),
    "the tool was taken away": lambda a, o: policy.set_grants(
        agent=a, tools=["read_file"], by=factories.actor(o)
    ),
    "the agent was suspended": lambda a, o: policy.change_agent(
        agent=a, active=False, by=factories.actor(o)
    ),
    "the token was revoked": lambda a, o: Token.objects.filter(user=a.service_account).update(
        revoked_at=timezone.now()
    ),
    "the tier was lowered": lambda a, o: tiers.set_tier(
        organization=o, tier=LicenseTier.objects.get(name="Core"), by=factories.actor(o)
    ),
    "the tool was marked critical": lambda a, o: mark_critical(o),
    "a rule wants two people now": lambda a, o: create_rule(
        organization=o, name="two", wanted={"tool": "echo", "approvals_needed": 2},
        by=factories.actor(o),
    ),
}  # fmt: skip


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_before_the_approval_voids_it(agent, organization, person, confirmation, change):
    change(agent, organization)
    assert refused(at_the_browser(person), word(confirmation)) == "confirmation_void"
    done = attempted(confirmation.execution)
    assert (done.status, never_began(done)) == ("PermissionDenied", True)
    assert codes(done) == ["TOOL.HELD", "CONFIRM.VOID"]
    assert Confirmation.objects.get(pk=confirmation.pk).status == "void"


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_after_the_approval_voids_it(agent, organization, person, confirmation, change):
    approve(confirmation, person)
    change(agent, organization)
    done = attempted(confirmation.execution)
    assert (done.status, never_began(done)) == ("PermissionDenied", True)
    assert Confirmation.objects.get(pk=confirmation.pk).status == "void"


def test_a_changed_call_can_still_be_rejected(agent, organization, person, confirmation):
    catalog.delete_tool(tool=tool(organization), by=factories.actor(organization))
    decisions.decide(caller=at_the_browser(person), word=word(confirmation, approve=False))
    assert row_of(confirmation).get().error_code == "confirmation_rejected"


def test_a_call_that_was_accepted_before_its_rule_does_not_run(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    create_rule(
        organization=organization,
        name="r",
        wanted={"tool": "echo"},
        by=factories.actor(organization),
    )
    done = attempted(execution)
    assert (done.error_code, never_began(done)) == ("confirmation_missing", True)


def test_a_call_that_was_accepted_before_the_mark_does_not_run(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    mark_critical(organization)
    done = attempted(execution)
    assert (done.error_code, never_began(done)) == ("confirmation_missing", True)


def test_a_held_call_stays_held_when_its_rule_goes(agent, organization):
    factories.tool(organization)
    rule = create_rule(
        organization=organization,
        name="r",
        wanted={"tool": "echo"},
        by=factories.actor(organization),
    )
    confirmation = call_awaiting_approval(agent)
    delete_rule(row=rule, by=factories.actor(organization))
    let_go(confirmation)
    done = attempted(confirmation.execution)
    assert (done.error_code, never_began(done)) == ("confirmation_missing", True)


SESSIONS = {
    "moved on": {"state": "elsewhere"},
    "closed": {"closed_at": timezone.now()},
}


@pytest.mark.parametrize("fields", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("when", ["before the yes", "after the yes"])
def test_a_changed_session_voids_it(agent, asks, person, fields, when):
    caller = factories.caller(agent)
    session, *_ = session_actions.open_session(caller=caller, group=None, state=None)
    confirmation = call_awaiting_approval(agent, session=str(session.pk), text="x")
    if when == "after the yes":
        approve(confirmation, person)
    Session.objects.filter(pk=session.pk).update(**fields)
    if when == "before the yes":
        assert refused(at_the_browser(person), word(confirmation)) == "confirmation_void"
    assert never_began(attempted(confirmation.execution))


# --- concurrency ----------------------------------------------------------------------------------


def together(*deeds):
    """Runs them at the same time, each on its own connection; returns the error codes."""
    raised, start = [], threading.Barrier(len(deeds))

    def run_deed(deed):
        start.wait()
        try:
            deed()
        except (Conflict, Forbidden) as error:
            raised.append(error.code)
        connection.close()

    threads = [threading.Thread(target=run_deed, args=[deed]) for deed in deeds]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return raised


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed", "crib")
def test_of_many_concurrent_approvals_one_counts_and_the_call_runs_once(organization, confirmation):
    callers = [at_the_browser(approver(organization)) for _ in range(6)]
    refusal_codes = together(
        *[
            lambda c=caller: decisions.decide(caller=c, word=word(confirmation))
            for caller in callers
        ],
    )
    assert refusal_codes == ["confirmation_decided"] * 5
    done = until(lambda: row_of(confirmation).filter(status="Success").first())
    assert done.attempt == 1 and codes(done).count("TOOL.START") == 1


@pytest.mark.usefixtures("committed")
def test_one_user_in_two_windows_approves_once(organization, agent):
    factories.tool(organization)
    mark_critical(organization)
    confirmation, caller = call_awaiting_approval(agent), at_the_browser(approver(organization))
    refusal_codes = together(
        *[lambda: decisions.decide(caller=caller, word=word(confirmation))] * 4
    )
    assert refusal_codes == ["already_decided"] * 3
    assert row_of(confirmation).get().status == "RequiresConfirmation"
    assert never_began(confirmation.execution)


@pytest.mark.usefixtures("committed")
def test_a_concurrent_approval_and_rejection_are_one_decision(organization, confirmation):
    yes, no = (at_the_browser(approver(organization)) for _ in range(2))
    refusal_codes = together(
        lambda: decisions.decide(caller=yes, word=word(confirmation)),
        lambda: decisions.decide(caller=no, word=word(confirmation, approve=False)),
    )
    assert refusal_codes == ["confirmation_decided"]
    assert ConfirmationDecision.objects.filter(confirmation=confirmation).count() == 1


@pytest.mark.part("calls")
@pytest.mark.usefixtures("committed")
def test_a_concurrent_approval_and_cancellation_have_one_result(agent, organization, confirmation):
    yes, caller = at_the_browser(approver(organization)), factories.caller(agent)
    together(
        lambda: decisions.decide(caller=yes, word=word(confirmation)),
        lambda: actions.cancel(caller=caller, execution=confirmation.execution),
    )
    done = until(lambda: row_of(confirmation).filter(completed_at__isnull=False).first())
    if done.status == "Cancelled" and done.attempt == 0:
        assert Confirmation.objects.get(pk=confirmation.pk).status == "void"
        assert never_began(done)
    else:
        assert codes(done).count("TOOL.START") == 1
