"""The second half of the execution pipeline: one worker claims a row, checks it again, and ends it
once."""

from datetime import timedelta

import pytest
from django.db import DatabaseError
from django.db.models.functions import Now

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.conditions import LIMIT_S, until
from tests.factories import definition
from tests.tools.approval_requests import attempted, attempted_in_thread
from tests.tools.database import no_evidence_for, no_lease_for, tamper
from tools.accounts import account_actions as policy
from tools.builtin.workspaces import workspace_path
from tools.catalog import actions as catalog
from tools.catalog.groups import delete_group, save_group
from tools.catalog.registry import registry
from tools.execution import answer
from tools.execution.perform import perform
from tools.licensing import tiers
from tools.models import Execution, Token

pytestmark = pytest.mark.usefixtures("committed")
SLEEPS = "import time\ndef main(parameters):\n    time.sleep(60)\n"


def codes(execution):
    """The codes of the audit records since the call was accepted."""
    found = AuditRecord.objects.filter(execution_id=execution.pk).order_by("id")
    found = found.exclude(code="TOOL.ACCEPT")
    return list(found.values_list("code", flat=True))


def code_tool(organization, source, **fields):
    return factories.tool(organization, implementation={"source": source}, **fields)


def is_running(execution):
    return Execution.objects.filter(pk=execution.pk, status="Running").exists()


def test_a_call_runs_and_leaves_a_result_its_events_and_its_records(agent, organization):
    factories.tool(organization)
    done = attempted(factories.execution(agent))
    assert (done.status, done.output, done.error_code) == ("Success", {"echo": {"text": "x"}}, "")
    assert done.observation == '{"echo": {"text": "x"}}'
    assert done.output_bytes == len(done.observation)
    assert [event.type for event in done.events.all()] == ["Started", "Completed"]
    assert codes(done) == ["TOOL.START", "TOOL.END"]
    assert (done.attempt, done.fence, done.lease_until) == (1, 1, None)
    assert done.created_at <= done.started_at <= done.completed_at
    assert done.duration_ms > 0 and done.sandbox_id
    assert done.metrics["peak_memory_bytes"] > 0 and done.metrics["queue_ms"] >= 0


def test_the_records_say_what_ran_and_for_whom(agent, organization):
    tool = factories.tool(organization)
    done = attempted(factories.execution(agent))
    accept, start, end = AuditRecord.objects.filter(execution_id=done.pk).order_by("id")
    assert start.subject_digest == end.subject_digest == tool.version.digest
    assert (start.actor, start.outcome, end.outcome) == (agent.slug, "started", "success")
    assert (accept.code, accept.details["granted_groups"]) == (
        "TOOL.ACCEPT",
        ["default", "read-only", "write"],
    )
    assert start.details["granted_groups"] == accept.details["granted_groups"]
    assert payloads.open_payload(accept.pk)["payload"] == {"parameters": {"text": "x"}}
    assert payloads.open_payload(end.pk)["payload"] == {"output": {"echo": {"text": "x"}}}


def test_a_call_that_is_over_is_not_run_again(agent, organization):
    factories.tool(organization)
    done = attempted(factories.execution(agent))
    assert attempted(done).completed_at == done.completed_at
    assert codes(done) == ["TOOL.START", "TOOL.END"]


def test_of_many_workers_exactly_one_runs_the_call(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    threads = [attempted_in_thread(execution) for _ in range(8)]
    [thread.join() for thread in threads]
    assert Execution.objects.get(pk=execution.pk).attempt == 1
    assert codes(execution) == ["TOOL.START", "TOOL.END"]


def test_without_evidence_nothing_runs(agent, organization):
    execution = factories.execution(agent, "write_file", group=["write"], path="p", content="c")
    with no_evidence_for(organization), pytest.raises(DatabaseError):
        perform(execution.pk)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, row.attempt, row.events.count(), codes(row)) == ("Pending", 0, 0, [])
    assert not (workspace_path(organization.slug) / "p").exists()


REVOCATIONS = {
    "the agent was suspended": lambda a, o: policy.change_agent(
        agent=a, active=False, by=factories.actor(o)
    ),
    "the token was revoked": lambda a, o: Token.objects.filter(user=a.service_account).update(
        revoked_at=Now()
    ),
    "the token ran out": lambda a, o: Token.objects.filter(user=a.service_account).update(
        created_at=Now() - timedelta(days=2), expires_at=Now() - timedelta(days=1)
    ),
    "the group was taken away": lambda a, o: policy.set_grants(
        agent=a, groups=["read-only"], by=factories.actor(o)
    ),
    "the tool was taken away": lambda a, o: policy.set_grants(
        agent=a, tools=["read_file"], by=factories.actor(o)
    ),
    "the tool was disabled": lambda a, o: catalog.set_enabled(
        tool=tool(o), enabled=False, by=factories.actor(o)
    ),
    "the tool was deleted": lambda a, o: catalog.delete_tool(tool=tool(o), by=factories.actor(o)),
    "the tool was changed": lambda a, o: catalog.update_tool(
        tool=tool(o), definition=definition(description="Other."), by=factories.actor(o)
    ),
    "the tier was lowered": lambda a, o: tiers.set_tier(
        organization=o, tier=type(o.tier).objects.get(name="Core"), by=factories.actor(o)
    ),
}


def tool(organization):
    return catalog.find_tool(organization, "echo")


@pytest.mark.parametrize("revoke", REVOCATIONS.values(), ids=REVOCATIONS)
def test_what_was_revoked_after_admission_does_not_run(agent, organization, revoke):
    factories.tool(organization)
    execution = factories.execution(agent, idempotency_key="k")
    revoke(agent, organization)
    done = attempted(execution)
    assert (done.status, done.output) == ("PermissionDenied", None)
    assert codes(done) == ["TOOL.DENY"]
    assert [event.type for event in done.events.all()] == ["Failed"]
    assert done.idempotency_key is None


def test_a_strict_agent_whose_group_went_away_is_refused_at_the_claim(organization):
    agent = factories.agent(organization, groups=["default", "gone"], strict=True)
    factories.tool(organization)
    group = save_group(organization=organization, name="gone", by=factories.actor(organization))
    execution = factories.execution(agent, group=["default", "gone"])
    delete_group(group=group, by=factories.actor(organization))
    done = attempted(execution)
    assert (done.status, done.error_code, codes(done)) == (
        "PermissionDenied",
        "group_unknown",
        ["TOOL.DENY"],
    )


def test_a_tampered_definition_does_not_run(agent, organization):
    version = factories.tool(organization).version
    execution = factories.execution(agent)
    tamper(version, implementation={"source": SLEEPS, "language": "python", "entry_point": "main"})
    registry.forget()
    done = attempted(execution)
    assert (done.status, done.error_code) == ("PermissionDenied", "SIGNATURE_INVALID")
    assert codes(done) == ["TOOL.DENY"]


def test_output_that_does_not_fit_its_schema_is_nowhere(agent, organization):
    source = "def main(parameters):\n    return {'number': 'c4nary-in-the-output'}"
    code_tool(organization, source, output_schema={"properties": {"number": {"type": "integer"}}})
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code, done.output) == ("Failed", "OUTPUT_INVALID", None)
    assert done.error_details == {"places": ["/number"], "effect_possible": True}
    assert "c4nary" not in str(vars(done))
    assert "c4nary" not in str(
        [r.details for r in AuditRecord.objects.filter(execution_id=done.pk)]
    )
    assert "c4nary" not in str(list(done.events.values()))


UNUSABLE = {
    "NUL": "'a\\x00b'",
    "half a surrogate pair": "'\\ud800'",
    "a NUL in a key": "{'a\\x00': 1}",
    "a thousand digits": "10**1000",
    "ten thousand digits": "int('9' * 4000) ** 3",
    "infinity": "float('inf')",
    "too deep": "__import__('functools').reduce(lambda inner, _: [inner], range(200), 1)",
    "far too deep": "__import__('functools').reduce(lambda inner, _: [inner], range(100_000), 1)",
    "no JSON": "object()",
    "bytes": "b'x'",
}


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize("value", UNUSABLE.values(), ids=UNUSABLE)
def test_output_that_json_cannot_hold_is_the_tools_failure_not_ours(agent, organization, value):
    code_tool(organization, f"def main(parameters):\n    return {value}")
    done = attempted(factories.execution(agent))
    assert (done.status, done.output) == ("Failed", None)
    assert done.error_code not in {"", "INTERNAL_ERROR"}


@pytest.mark.parametrize("message", ["'a\\x00b'", "'\\ud800'", "'x' * 100_000"])
def test_a_tools_error_message_cannot_hurt_us(agent, organization, message):
    source = f"from toolcrib import ToolError\ndef main(p):\n    raise ToolError('MINE', {message})"
    code_tool(organization, source)
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code in {"MINE", "INVALID_RESULT"}) == ("Failed", True)
    assert len(done.error_message) <= 1_000


def test_a_tools_error_is_answered_by_its_code_and_message(agent, organization):
    source = "import toolcrib\ndef main(p):\n    raise toolcrib.ToolError('NO_PAPER', 'Add paper.')"
    code_tool(organization, source)
    done = attempted(factories.execution(agent))
    assert (done.status, done.error_code, done.error_message) == (
        "Failed",
        "NO_PAPER",
        "Add paper.",
    )
    assert [event.type for event in done.events.all()] == ["Started", "Failed"]


def test_a_tool_that_breaks_shows_no_stack_trace(agent, organization):
    code_tool(organization, "def main(parameters):\n    return 1 / 0")
    done = attempted(factories.execution(agent))
    assert done.status == "Failed" and done.error_code
    assert "Traceback" not in done.error_message and "File " not in done.error_message


def test_a_tool_is_stopped_at_its_timeout(agent, organization):
    code_tool(organization, SLEEPS)
    done = attempted(factories.execution(agent, timeout_s=0.5))
    assert (done.status, done.output) == ("Timeout", None)
    assert done.duration_ms < 60_000  # the duration without the timeout
    assert [event.type for event in done.events.all()] == ["Started", "Timeout"]


def test_a_timeout_of_almost_nothing_is_a_timeout(agent, organization):
    factories.tool(organization)
    assert attempted(factories.execution(agent, timeout_s=0.000001)).status == "Timeout"


def test_more_output_than_allowed_is_a_failure(agent, organization):
    code_tool(
        organization, "def main(p):\n    return 'x' * 5000", constraints={"max_output_size": 1000}
    )
    done = attempted(factories.execution(agent))
    assert (done.status, done.output) == ("Failed", None)


def test_defaults_stand_in_for_what_the_caller_left_out(agent, organization):
    parameters = [
        {"name": "text", "type": "String", "description": "t", "default": "from the definition"},
        {"name": "flag", "type": "Boolean", "description": "f", "default": False},
    ]
    factories.tool(organization, parameters=parameters)
    done = attempted(factories.execution(agent, flag=True))
    assert done.output == {"echo": {"text": "from the definition", "flag": True}}


def test_a_pending_call_is_cancelled_at_once(agent, organization):
    factories.tool(organization)
    caller = factories.caller(agent)
    execution = factories.execution(agent)
    cancelled = answer.cancel(caller=caller, execution=execution)
    assert (cancelled.status, cancelled.error_code) == ("Cancelled", "CANCELLED")
    assert attempted(execution).status == "Cancelled"
    assert codes(execution) == ["TOOL.CANCEL"]


def test_a_running_call_is_cancelled_within_moments(agent, organization):
    code_tool(organization, SLEEPS)
    caller, execution = factories.caller(agent), factories.execution(agent)
    thread = attempted_in_thread(execution)
    until(lambda: is_running(execution))
    answer.cancel(caller=caller, execution=execution)
    thread.join(LIMIT_S)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.output) == ("Cancelled", None)
    assert codes(execution) == ["TOOL.START", "TOOL.CANCEL", "TOOL.END"]


def test_a_late_worker_cannot_write_its_result(agent, gate):
    gate.tool("late")
    execution = factories.execution(agent, "late")
    thread = attempted_in_thread(execution)
    until(lambda: is_running(execution))
    factories.release(execution)
    factories.claimed(execution)
    gate.open()
    thread.join(LIMIT_S)
    row = Execution.objects.get(pk=execution.pk)
    assert (row.status, row.output, row.fence) == ("Running", None, 2)
    assert codes(execution) == ["TOOL.START", "TOOL.LATE_COMPLETION_REJECTED"]
    row.delete()


@pytest.mark.part("calls")
def test_a_lease_is_renewed_while_the_call_runs(agent, gate, settings):
    settings.EXECUTION_LEASE_S = 9
    gate.tool("kept")
    execution = factories.execution(agent, "kept")
    thread = attempted_in_thread(execution)
    until(lambda: is_running(execution))
    row = Execution.objects.filter(pk=execution.pk)
    for _ in range(2):
        leased = row.get().lease_until
        until(lambda leased=leased: row.get().lease_until > leased)
    gate.open()
    thread.join(LIMIT_S)
    assert row.get().output == "done"
    assert codes(execution) == ["TOOL.START", "TOOL.END"]


@pytest.mark.part("faults")
def test_a_worker_that_cannot_renew_its_lease_stops_with_an_unknown_outcome(
    agent, organization, settings
):
    settings.EXECUTION_LEASE_S = 9
    code_tool(organization, SLEEPS)
    execution = factories.execution(agent)
    with no_lease_for(organization):
        done = attempted(execution)
    assert (done.status, done.error_code) == ("Failed", "OUTCOME_UNKNOWN")
    assert done.duration_ms < settings.EXECUTION_LEASE_S * 1000
    assert codes(done) == ["TOOL.START", "TOOL.END"]


def test_a_fault_of_ours_ends_the_call_without_its_details(agent, organization, settings):
    settings.WORKSPACES_DIR = "/proc/nowhere"
    workspace_path.cache_clear()
    execution = factories.execution(agent, "read_file", group=["read-only"], path="a")
    done = attempted(execution)
    workspace_path.cache_clear()
    assert (done.status, done.error_code) == ("Failed", "INTERNAL_ERROR")
    assert "proc" not in done.error_message
    assert codes(done) == ["TOOL.START", "TOOL.END"]
