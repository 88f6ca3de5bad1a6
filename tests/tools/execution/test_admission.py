"""Admission, the first half of the execution pipeline: a call is accepted as a row, or refused with
a recorded reason."""

import threading

import pytest
from django.db import connection

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tools.errors import InvalidCall, Malformed, NotFound, Refused
from tools.execution.admit import ADMISSION, admit
from tools.models import Execution


def records(organization):
    return AuditRecord.objects.filter(organization=organization.slug, code__startswith="TOOL.")


def nothing_ran(organization):
    began = Execution.objects.filter(organization=organization, started_at__isnull=False)
    return not began.exists() and not records(organization).filter(code="TOOL.START").exists()


def test_the_gates_stand_in_the_order_of_the_specification():
    assert [step.__name__ for step in ADMISSION] == [
        "resolve", "arrive", "enter_session", "authorize", "limit_rate", "check_json",
        "resolve_references", "validate_arguments",
    ]  # fmt: skip


def test_an_accepted_call_is_a_pending_row_with_all_that_was_asked(agent, organization):
    factories.tool(organization)
    caller = factories.caller(agent)
    call = factories.call("echo", {"text": "x"}, state="s", group=["default"], timeout_s=5)
    execution = Execution.objects.get(pk=admit(caller, call).pk)
    assert (execution.status, execution.tool_name, execution.parameters) == (
        "Pending",
        "echo",
        {"text": "x"},
    )
    assert (execution.state, execution.requested_groups, execution.timeout_s) == (
        "s",
        ["default"],
        5,
    )
    assert (execution.user, execution.agent) == (agent.service_account, agent)
    assert execution.tool_version.label == "1.0.0"


@pytest.mark.parametrize(("asked", "given"), [(5, 5), (30, 30), (3_600, 30), (None, 30)])
def test_a_timeout_only_tightens(agent, organization, asked, given):
    factories.tool(organization)
    execution = factories.execution(agent, timeout_s=asked)
    assert execution.timeout_s == given


# Where two gates would refuse, the first in the order of ruling 9 gives the reason.
ORDER = [
    ({"group": ["admin"]}, ["admin"], "group_not_granted"),
    ({"group": ["mine"]}, ["default"], "tool_not_in_group"),
    ({"available_in_states": []}, ["default"], "tool_not_in_state"),
    (
        {"required_permissions": ["p"], "requires_confirmation": True},
        ["default"],
        "permission_missing",
    ),
    ({"requires_confirmation": True}, ["default"], "invalid_parameters"),
]


@pytest.mark.parametrize(("fields", "group", "code"), ORDER)
def test_the_first_gate_that_refuses_speaks(agent, organization, fields, group, code):
    factories.tool(organization, **fields)
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call("echo", {"wrong": 1}, group=group))
    assert caught.value.code == code
    assert nothing_ran(organization)


def test_the_licence_is_asked_before_the_arguments(db):
    place = factories.organization("order", "Core")
    agent = factories.agent(place, groups=["read-only"])
    call = factories.call("validate_content", {"wrong": 1}, group=["read-only"])
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), call)
    assert caught.value.code == "license_excludes_tool"


def test_an_invalid_call_requests_no_approval(agent, organization):
    factories.tool(organization, requires_confirmation=True)
    with pytest.raises(InvalidCall):
        admit(factories.caller(agent), factories.call("echo", {}))


@pytest.mark.parametrize("of_the_tool", [True, False])
def test_a_call_that_needs_a_confirmation_does_not_run_without_one(
    agent, organization, of_the_tool
):
    factories.tool(organization, requires_confirmation=of_the_tool)
    call = factories.call("echo", {"text": "x"}, require_confirmation=not of_the_tool)
    execution = admit(factories.caller(agent), call)
    assert execution.status == "RequiresConfirmation"
    assert nothing_ran(organization)


def test_a_refusal_is_a_row_an_event_and_a_record(agent, organization):
    tool = factories.tool(organization, group=["mine"])
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call("echo", {"text": "x"}))
    execution = Execution.objects.get(pk=caught.value.details["execution_id"])
    record = records(organization).get()
    assert (execution.status, execution.error_code) == ("PermissionDenied", "tool_not_in_group")
    assert [event.type for event in execution.events.all()] == ["Failed"]
    assert (record.code, record.outcome, record.reason) == (
        "TOOL.DENY",
        "denied",
        "tool_not_in_group",
    )
    assert (record.actor, record.execution_id) == (agent.slug, execution.pk)
    assert record.subject_digest == tool.version.digest
    assert payloads.open_payload(record.pk)["payload"] == {"parameters": {"text": "x"}}
    assert nothing_ran(organization)


def test_an_unknown_tool_is_on_record_too(agent, organization):
    with pytest.raises(NotFound):
        admit(factories.caller(agent), factories.call("ghost"))
    record = records(organization).get()
    assert (record.code, record.subject, record.reason) == ("TOOL.DENY", "ghost", "tool_not_found")
    assert record.details["granted_groups"] == ["default", "read-only", "write"]
    assert not Execution.objects.filter(organization=organization).exists()


@pytest.mark.parametrize("name", ["Echo", "echo ", "ECHO", "", "ech*"])
def test_a_tool_is_named_exactly(agent, organization, name):
    factories.tool(organization)
    with pytest.raises(NotFound):
        admit(factories.caller(agent), factories.call(name, {"text": "x"}))


def test_a_tool_that_was_not_granted_is_refused(organization):
    factories.tool(organization)
    agent = factories.agent(organization, tools=["read_file"])
    with pytest.raises(Refused) as caught:
        admit(factories.caller(agent), factories.call("echo", {"text": "x"}))
    assert caught.value.code == "tool_not_granted"
    assert nothing_ran(organization)


PARAMETERS = [
    ({}, "/"),
    ({"text": 5}, "/text"),
    ({"text": None}, "/text"),
    ({"text": "x", "more": 1}, "/"),
    ({"Text": "x"}, "/"),
]


@pytest.mark.parametrize(("parameters", "place"), PARAMETERS)
def test_parameters_that_do_not_fit_are_refused_with_their_places(
    agent, organization, parameters, place
):
    factories.tool(organization)
    with pytest.raises(InvalidCall) as caught:
        admit(factories.caller(agent), factories.call("echo", parameters))
    assert place in {error["place"] for error in caught.value.details["errors"]}
    assert records(organization).get().code == "TOOL.INVALID"
    assert nothing_ran(organization)


def test_arguments_pass_unchanged_where_the_mode_is_off(agent, organization):
    factories.tool(organization, argument_validation="off")
    execution = admit(factories.caller(agent), factories.call("echo", {"anything": [1]}))
    assert (execution.parameters, execution.warnings) == ({"anything": [1]}, [])


def test_arguments_pass_with_a_warning_where_the_mode_is_warn(agent, organization):
    factories.tool(organization, argument_validation="warn")
    execution = admit(factories.caller(agent), factories.call("echo", {"text": 5}))
    assert execution.warnings == ['/text: 5 is not of type "string"']


@pytest.mark.parametrize(
    "value", [float("nan"), 10**300, "\x00", "\ud800"], ids=lambda one: repr(one)[:20]
)
def test_values_json_cannot_hold_are_no_call(agent, organization, value):
    factories.tool(organization, argument_validation="off")
    with pytest.raises(Malformed):
        admit(factories.caller(agent), factories.call("echo", {"text": value}))
    assert not Execution.objects.filter(organization=organization).exists()


def test_an_unknown_session_is_not_found(agent, organization):
    factories.tool(organization)
    with pytest.raises(NotFound):
        factories.execution(agent, session="s-1")


def test_a_warning_names_groups_that_do_not_exist(organization):
    factories.tool(organization)
    agent = factories.agent(organization, groups=["default", "ghost"])
    execution = factories.execution(agent, group=["default", "ghost"])
    assert execution.warnings == ["There is no group ghost; it was ignored."]


def test_many_calls_at_once_are_all_accepted(committed, organization, agent):
    factories.tool(organization)
    caller = factories.caller(agent)
    threads = [
        threading.Thread(target=_admit_and_close, args=(caller, number)) for number in range(16)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert Execution.objects.filter(organization=organization).count() == 16


def _admit_and_close(caller, number):
    admit(caller, factories.call("echo", {"text": str(number)}))
    connection.close()
