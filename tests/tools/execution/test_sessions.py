"""The server keeps a session's state, groups and history, and only a successful call changes the
state."""

import threading
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from audit.models import AuditRecord
from tests import factories
from tests.conditions import LIMIT_S, until
from tests.tools.approval_requests import attempted, attempted_in_thread
from tests.tools.database import no_transition_for
from tools import metrics
from tools.accounts import account_actions as policy
from tools.accounts.callers import caller_of_user
from tools.catalog import actions as catalog
from tools.errors import Conflict, Forbidden, Malformed, NotFound, Refused
from tools.execution import answer
from tools.execution.admit import admit
from tools.execution.sessions import SessionBusy
from tools.models import Execution, Session, StateTransition
from tools.worker import session_maintenance
from tools.workflows import session_actions

pytestmark = pytest.mark.usefixtures("committed")
FAILS = {"source": "def main(parameters):\n    raise ValueError('no')\n"}
SLEEPS = {"source": "import time\ndef main(parameters):\n    time.sleep(60)\n"}
DICE = {"source": "import uuid\ndef main(parameters):\n    return str(uuid.uuid4())\n"}


@pytest.fixture
def workflow(organization):
    """undefined → analysis → results → undefined, and one tool without a transition."""
    for name, before, after in (
        ("query", "undefined", "analysis"),
        ("analyse", "analysis", "results"),
        ("reset", "results", "undefined"),
    ):
        factories.tool(organization, name, state=after, available_in_states=[before])
    factories.tool(organization, "look")


def opened(agent, **asked):
    asked = {"group": None, "state": None} | asked
    return session_actions.open_session(caller=factories.caller(agent), **asked)[0]


def queue_call(agent, session, tool, **fields):
    return factories.execution(agent, tool, session=str(session.pk), text="x", **fields)


def state_of(session):
    return Session.objects.get(pk=session.pk).state


def untouched(session):
    now = Session.objects.get(pk=session.pk)
    return (now.state, now.entered_at) == (session.state, session.entered_at) and not (
        StateTransition.objects.filter(session=session).exists()
    )


def records(organization, code):
    return AuditRecord.objects.filter(organization=organization.slug, code=code)


# --- opening and closing ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("group", "groups"),
    [(None, ["default"]), ([], []), (["write", "default"] * 2, ["default", "write"])],
)
def test_a_sessions_groups_are_the_effective_ones(agent, group, groups):
    session = opened(agent, group=group)
    assert (session.groups, session.state) == (groups, "undefined")
    assert (session.user, session.agent) == (agent.service_account, agent)


def test_opening_and_closing_are_on_record(agent, organization):
    session = opened(agent, state="analysis")
    session_actions.close_session(caller=factories.caller(agent), session=session)
    session_actions.close_session(caller=factories.caller(agent), session=session)
    made = records(organization, "SESSION.OPEN").get()
    assert (made.subject, made.actor) == (str(session.pk), agent.slug)
    assert made.details == {"group": ["default"], "state": "analysis", "pins": {}}
    assert records(organization, "SESSION.CLOSE").get().reason == "asked"


@pytest.mark.parametrize("group", [["admin"], ["*"], ["default", "admin"]])
def test_a_session_has_no_group_that_was_not_granted(agent, organization, group):
    with pytest.raises(Refused) as refusal:
        opened(agent, group=group)
    assert refusal.value.code == "group_not_granted"
    assert records(organization, "SESSION.DENY").get().reason == "group_not_granted"
    assert not Session.objects.filter(organization=organization).exists()


UNREADABLE = ("a\u202eb", "a\tb\x07", "e\u0301", "x" * 101)


# An empty state is the state undefined, an empty group is none.
@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize(
    ("field", "name"),
    [("group", ""), *((field, name) for field in ("group", "state") for name in UNREADABLE)],
)
def test_unreadable_names_are_refused(agent, field, name):
    with pytest.raises(Malformed):
        opened(agent, **{field: [name] if field == "group" else name})


def test_a_strict_agent_opens_no_session_with_unknown_groups(organization):
    strict = factories.agent(organization, groups=["default", "gone"], strict=True)
    lenient = factories.agent(organization, groups=["default", "gone"])
    with pytest.raises(Malformed):
        opened(strict, group=["gone"])
    _, warnings = session_actions.open_session(
        caller=factories.caller(lenient), group=["gone"], state=None
    )
    assert warnings == ["There is no group gone; it was ignored."]


def test_a_caller_keeps_only_so_many_sessions_open(agent, organization, monkeypatch):
    monkeypatch.setattr(session_actions, "MOST_OPEN_SESSIONS", 2)
    session, _ = opened(agent), opened(agent)
    with pytest.raises(Conflict) as refusal:
        opened(agent)
    assert refusal.value.code == "too_many_sessions"
    session_actions.close_session(caller=factories.caller(agent), session=session)
    assert opened(agent)


def test_an_unused_session_is_closed_in_time(agent, organization, workflow, settings):
    idle, used, held = opened(agent), opened(agent), opened(agent)
    attempted(queue_call(agent, used, "look"))
    queue_call(agent, held, "look")
    ago = Now() - timedelta(hours=settings.SESSION_IDLE_HOURS, minutes=1)
    mine = Session.objects.filter(organization=organization)
    mine.update(created_at=ago, entered_at=ago)
    Execution.objects.filter(session=held).update(created_at=ago)
    session_maintenance.close_idle()
    assert list(mine.filter(closed_at__isnull=False)) == [idle]
    record = records(organization, "SESSION.CLOSE").get()
    assert (record.subject, record.reason, record.actor_kind) == (str(idle.pk), "idle", "system")


@pytest.mark.part("calls")
def test_sessions_without_a_next_state_are_counted(agent, organization, workflow):
    opened(agent)
    opened(agent, group=[], state="nowhere")
    lost = [opened(agent, group=["write"], state="nowhere") for _ in range(2)]
    gauge = metrics.sessions_stuck.labels(organization.slug)._value
    session_maintenance.count_stuck()
    assert gauge.get() == 0  # `write` contains write_file, which is available in every state
    catalog.set_enabled(
        tool=catalog.find_tool(organization, "write_file"),
        enabled=False,
        by=factories.actor(organization),
    )
    session_maintenance.count_stuck()
    assert gauge.get() == len(lost)


# --- transitions --------------------------------------------------------------------------------
def test_success_moves_the_state_with_its_result(agent, organization, workflow):
    session = opened(agent)
    call = attempted(queue_call(agent, session, "query"))
    assert (call.status, call.state, call.state_after) == ("Success", "undefined", "analysis")
    moved = StateTransition.objects.get(session=session)
    assert (moved.execution, moved.tool_name) == (call, "query")
    assert (moved.from_state, moved.to_state) == ("undefined", "analysis")
    assert state_of(session) == "analysis"
    assert Session.objects.get(pk=session.pk).entered_at > session.entered_at


def test_a_transition_is_on_record_and_counted(agent, organization, workflow):
    counted = metrics.state_transitions.labels("query", "analysis")._value
    spent = metrics.workflow_duration.labels("undefined")._sum
    before, before_s = counted.get(), spent.get()
    session = opened(agent)
    call = attempted(queue_call(agent, session, "query"))
    record = AuditRecord.objects.get(execution_id=call.pk, code="STATE.TRANSITION")
    assert (record.subject, record.outcome, record.actor) == ("query", "changed", agent.slug)
    assert record.details == {"session": str(session.pk), "from": "undefined", "to": "analysis"}
    assert (counted.get(), spent.get() > before_s) == (before + 1, True)


def test_a_state_only_a_client_has_named_is_counted_under_one_word(agent, organization):
    factories.tool(organization, "anywhere", state="named")
    unknown = metrics.workflow_duration.labels("unknown")._sum.get()
    session = opened(agent, state=f"made-up-{uuid4()}")
    attempted(queue_call(agent, session, "anywhere"))
    assert metrics.workflow_duration.labels("unknown")._sum.get() > unknown


ENDINGS = {
    "Failed": {"implementation": FAILS},
    "Timeout": {"implementation": SLEEPS},
    "OUTPUT_INVALID": {"output_schema": {"type": "string"}},
}


@pytest.mark.parametrize(("word", "fields"), ENDINGS.items(), ids=ENDINGS)
def test_a_failed_call_does_not_change_the_state(agent, organization, word, fields):
    factories.tool(organization, "leads", state="elsewhere", **fields)
    session = opened(agent)
    call = attempted(queue_call(agent, session, "leads", timeout_s=0.5))
    assert word in (call.status, call.error_code)
    assert call.state_after == "undefined"
    assert untouched(session)


def test_a_cancelled_call_leaves_the_state_and_its_place(agent, organization, workflow):
    session = opened(agent)
    call = queue_call(agent, session, "query")
    answer.cancel(caller=factories.caller(agent), execution=call)
    assert untouched(session)
    assert attempted(queue_call(agent, session, "query")).status == "Success"


def test_a_refused_call_leaves_the_state_and_stands_in_the_history(agent, workflow):
    session = opened(agent)
    with pytest.raises(Refused) as refusal:
        queue_call(agent, session, "analyse")
    assert refusal.value.code == "tool_not_in_state"
    assert untouched(session)
    step = session_actions.session_history(session).get()
    assert (step.status, step.arguments, step.state) == (
        "PermissionDenied",
        {"text": "x"},
        "undefined",
    )


def test_when_the_settlement_fails_nothing_has_moved(agent, organization, workflow):
    session = opened(agent)
    execution = queue_call(agent, session, "query")
    with no_transition_for(organization):
        call = attempted(execution)
    assert (call.status, call.error_code, call.output) == ("Failed", "INTERNAL_ERROR", None)
    assert untouched(session)
    assert not AuditRecord.objects.filter(execution_id=call.pk, code="STATE.TRANSITION").exists()


def test_a_tool_that_leads_where_the_workflow_is_leaves_no_transition(agent, organization):
    factories.tool(organization, "stays", state="undefined")
    session = opened(agent)
    assert attempted(queue_call(agent, session, "stays")).state_after == "undefined"
    assert untouched(session)


def test_a_call_without_a_session_leaves_its_transition_too(agent, organization, workflow):
    call = attempted(factories.execution(agent, "query", text="x"))
    moved = StateTransition.objects.get(execution=call)
    assert (moved.session, moved.to_state) == (None, "analysis")
    record = AuditRecord.objects.get(execution_id=call.pk, code="STATE.TRANSITION")
    assert record.details["session"] is None


def test_each_step_has_its_own_tools_and_the_last_one_leads_back(agent, organization, workflow):
    session, caller = opened(agent), factories.caller(agent)
    for tool in ("query", "analyse", "reset"):
        now = Session.objects.get(pk=session.pk)
        names = [one.name for one in session_actions.available_tools(caller, now)]
        assert names == sorted(["look", tool])
        for other in {"query", "analyse", "reset"} - {tool}:
            with pytest.raises(Refused):
                queue_call(agent, session, other)
        assert attempted(queue_call(agent, session, tool)).status == "Success"
    path = [one.to_state for one in session_actions.latest_transitions(session)]
    assert path == ["analysis", "results", "undefined"]


# --- checks at the time of the call -------------------------------------------------------------
def test_a_queued_call_does_not_begin_in_a_closed_session(agent, organization, workflow):
    session = opened(agent)
    execution = queue_call(agent, session, "query")
    session_actions.close_session(caller=factories.caller(agent), session=session)
    call = attempted(execution)
    assert (call.status, call.error_code) == ("PermissionDenied", "session_closed")
    records = AuditRecord.objects.filter(execution_id=call.pk).order_by("id")
    assert [record.code for record in records] == ["TOOL.ACCEPT", "TOOL.DENY"]
    assert untouched(session)


def test_a_queued_call_does_not_begin_in_another_state(agent, organization, workflow):
    session = opened(agent)
    execution = queue_call(agent, session, "query")
    Session.objects.filter(pk=session.pk).update(state="results")
    call = attempted(execution)
    assert (call.status, call.error_code) == ("PermissionDenied", "session_changed")
    assert state_of(session) == "results"


def test_a_revoked_group_stops_the_next_call_and_a_queued_one(agent, organization, workflow):
    session = opened(agent, group=["default", "write"])
    queued = queue_call(agent, session, "query")
    policy.set_grants(agent=agent, groups=["default"], by=factories.actor(organization))
    assert attempted(queued).error_code == "group_not_granted"
    with pytest.raises(Refused) as refusal:
        queue_call(agent, session, "query")
    assert refusal.value.code == "group_not_granted"
    caller = factories.caller(agent)
    assert session_actions.available_tools(caller, session) == []
    assert untouched(session)


def test_a_running_call_finishes_in_a_session_that_was_closed(agent, gate):
    gate.tool("leads", state="elsewhere")
    session = opened(agent)
    execution = queue_call(agent, session, "leads")
    thread = attempted_in_thread(execution)
    until(lambda: Execution.objects.filter(pk=execution.pk, status="Running").exists())
    session_actions.close_session(caller=factories.caller(agent), session=session)
    gate.open()
    thread.join(LIMIT_S)
    assert Execution.objects.get(pk=execution.pk).status == "Success"
    assert state_of(session) == "elsewhere"


def test_a_closed_session_takes_no_call(agent, organization, workflow):
    session = opened(agent)
    session_actions.close_session(caller=factories.caller(agent), session=session)
    with pytest.raises(Conflict) as refusal:
        queue_call(agent, session, "query")
    assert refusal.value.code == "session_closed"
    assert records(organization, "TOOL.DENY").get().reason == "session_closed"


NOBODYS = "019d0000-0000-7000-8000-000000000000"


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("identifier", ["", "x", "0" * 31, "*", "\u0661" * 32, NOBODYS])
def test_what_is_no_session_is_not_found(agent, workflow, identifier):
    with pytest.raises(NotFound) as absence:
        factories.execution(agent, "query", session=identifier, text="x")
    assert absence.value.code == "session_not_found"


def test_another_callers_session_is_not_found(agent, organization, workflow):
    elsewhere = factories.agent(factories.organization(f"org-{uuid4().hex[:12]}"))
    for stranger in (factories.agent(organization), elsewhere):
        with pytest.raises(NotFound):
            queue_call(agent, opened(stranger), "query")


# --- one call at a time -------------------------------------------------------------------------
def test_while_one_call_is_open_another_is_refused_and_names_it(agent, organization, workflow):
    session, caller = opened(agent), factories.caller(agent)
    first = queue_call(agent, session, "query")
    call = factories.call("query", {"text": "x"}, session=str(session.pk))
    with pytest.raises(Conflict) as refusal:
        answer.execute(caller=caller, call=call, wait_s=0)
    assert refusal.value.code == "session_busy"
    assert refusal.value.details["open_execution"] == str(first.pk)
    assert records(organization, "TOOL.DENY").get().reason == "session_busy"
    assert attempted(first).status == "Success"


@pytest.mark.part("calls")
@pytest.mark.usefixtures("crib")
def test_of_many_calls_at_once_exactly_one_is_accepted(agent, organization, workflow):
    session, caller = opened(agent), factories.caller(agent)
    start, ends = threading.Barrier(8), []

    def run():
        start.wait()
        call = factories.call("query", {"text": "x"}, session=str(session.pk))
        try:
            execution = answer.execute(caller=caller, call=call, wait_s=20)
            late = answer.refusal_of(execution)  # it came as the first ended, in the old state
            ends.append(late.code if late else execution.status)
        except Conflict as conflict:
            ends.append(conflict.code)
        except Refused as refusal:  # it came after the first had ended, in the new state
            ends.append(refusal.code)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert ends.count("Success") == 1
    assert set(ends) <= {"Success", "session_busy", "session_changed", "tool_not_in_state"}
    assert StateTransition.objects.filter(session=session).count() == 1


@pytest.mark.part("calls")
@pytest.mark.usefixtures("crib")
def test_the_same_key_twice_at_once_is_one_call_and_no_conflict(agent, organization, workflow):
    session, caller = opened(agent), factories.caller(agent)
    start, seen = threading.Barrier(4), []

    def run():
        start.wait()
        call = factories.call(
            "query", {"text": "x"}, session=str(session.pk), idempotency_key="once"
        )
        seen.append(answer.execute(caller=caller, call=call, wait_s=20).pk)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert (len(seen), len(set(seen))) == (4, 1)


@pytest.fixture
def cached_call(agent, organization):
    """A cached tool that leads to another state."""
    factories.tool(
        organization, "known", state="elsewhere", delivery="pure", cache_ttl="PT5M",
        implementation=DICE,
    )  # fmt: skip
    return attempted(factories.execution(agent, "known", text="x"))


def test_a_hit_moves_the_state_as_a_run_does(agent, organization, cached_call):
    session = opened(agent)
    hit = queue_call(agent, session, "known")
    assert (hit.status, hit.output, hit.state_after) == ("Success", cached_call.output, "elsewhere")
    assert state_of(session) == "elsewhere"
    moved = StateTransition.objects.get(session=session)
    assert (moved.execution_id, moved.from_state) == (hit.pk, "undefined")


def test_a_hit_is_not_served_beside_an_open_call(agent, organization, cached_call, workflow):
    session = opened(agent)
    first = queue_call(agent, session, "look")
    with pytest.raises(SessionBusy):
        queue_call(agent, session, "known")
    assert untouched(session)
    assert attempted(first).status == "Success"


def test_a_hit_does_not_wait_for_a_session_that_another_call_holds(
    agent, organization, cached_call
):
    session = opened(agent)
    call = factories.call("known", {"text": "x"}, session=str(session.pk))
    with _locked_session(session), pytest.raises(Conflict) as refusal:
        answer.execute(caller=factories.caller(agent), call=call, wait_s=0)
    assert refusal.value.code == "session_busy"
    assert untouched(session) and not Execution.objects.filter(session=session).exists()


@contextmanager
def _locked_session(session):
    """Meanwhile another transaction locks the session's row, as a claim does."""
    held, release = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            Session.objects.select_for_update(no_key=True).get(pk=session.pk)
            held.set()
            release.wait(LIMIT_S)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(LIMIT_S)
    try:
        yield
    finally:
        release.set()
        thread.join(LIMIT_S)


# --- what a client sends with its session -------------------------------------------------------
def test_the_same_groups_and_state_may_be_named(agent, workflow):
    session = opened(agent, group=["default", "write"])
    call = queue_call(agent, session, "query", group=["write", "default"], state="undefined")
    assert call.requested_groups == ["default", "write"]


MISMATCHES = {
    "more groups": {"group": ["default", "write", "read-only"]},
    "fewer groups": {"group": ["default"]},
    "no group": {"group": []},
    "another state": {"state": "analysis"},
    "an empty state": {"state": ""},
}


@pytest.mark.part("calls", but_each=3)
@pytest.mark.parametrize("named", MISMATCHES.values(), ids=MISMATCHES)
def test_other_groups_or_another_state_are_a_conflict_on_record(
    agent, organization, workflow, named
):
    field = next(iter(named))
    before = metrics.session_mismatches.labels(field)._value.get()
    session = opened(agent, group=["default", "write"])
    with pytest.raises(Conflict) as refusal:
        queue_call(agent, session, "query", **named)
    assert refusal.value.code == "session_mismatch"
    assert refusal.value.details["group"] == ["default", "write"]
    assert refusal.value.details["state"] == "undefined"
    assert metrics.session_mismatches.labels(field)._value.get() == before + 1
    record = records(organization, "SESSION.MISMATCH").get()
    assert (record.subject, record.outcome) == (str(session.pk), "denied")
    assert (record.details["fields"], record.details["tool"]) == ([field], "query")
    assert untouched(session) and not Execution.objects.filter(session=session).exists()


def test_a_state_named_to_reach_a_tool_is_an_invalid_transition(agent, workflow):
    reached, there = (
        metrics.invalid_transitions.labels(name)._value for name in ("analyse", "query")
    )
    before = (reached.get(), there.get())
    session = opened(agent)
    for tool in ("analyse", "query"):
        with pytest.raises(Conflict):
            queue_call(agent, session, tool, state="analysis")
    assert (reached.get(), there.get()) == (before[0] + 1, before[1])


# --- reading ------------------------------------------------------------------------------------
@pytest.mark.part("calls")
def test_large_arguments_and_observations_are_cut_in_the_history(agent, organization, workflow):
    session = opened(agent)
    large = {"text": "x" * 10_000}
    call = admit(factories.caller(agent), factories.call("look", large, session=str(session.pk)))
    attempted(call)
    step = session_actions.session_history(session).get()
    assert (step.arguments, len(step.seen)) == (None, session_actions.MOST_OBSERVATION)


def test_a_session_is_read_and_closed_with_permission(agent, organization):
    session = opened(agent)
    person, auditor, manager = (factories.person(organization) for _ in range(3))
    factories.permit(auditor, "view_session")
    factories.permit(manager, "view_session", "change_session")
    with pytest.raises(NotFound):
        session_actions.find_readable_session(caller_of_user(person), session.pk)
    assert session_actions.find_readable_session(caller_of_user(auditor), session.pk) == session
    with pytest.raises(Forbidden):
        session_actions.close_session(caller=caller_of_user(auditor), session=session)
    session_actions.close_session(caller=caller_of_user(manager), session=session)
    assert records(organization, "SESSION.CLOSE").get().actor == manager.username


def test_a_reader_sees_the_tools_that_the_owner_has(agent, organization, workflow):
    reader = factories.person(organization)
    factories.permit(reader, "view_session")
    tools = session_actions.available_tools(caller_of_user(reader), opened(agent))
    assert [tool.name for tool in tools] == ["look", "query"]
    policy.change_agent(agent=agent, active=False, by=factories.actor(organization))
    session = Session.objects.get(agent=agent)
    assert session_actions.available_tools(caller_of_user(reader), session) == []
