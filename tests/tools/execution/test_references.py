"""Parameters that refer to another execution's output: permission, paths, and what is stored."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.utils import timezone
from guardian.shortcuts import assign_perm

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.conditions import until
from tests.tools.approval_requests import approve, approver
from tools.accounts import account_actions as policy
from tools.accounts.callers import caller_of_user
from tools.accounts.token_authentication import caller_of_token
from tools.errors import InvalidCall
from tools.execution.admit import admit
from tools.execution.perform import perform
from tools.models import Confirmation, Execution
from tools.shapes.executions import execution_shape
from tools.worker import retention

pytestmark = pytest.mark.usefixtures("committed")
SECRET = "swordfish-7"
OUTPUT = {"name": SECRET, "count": 3, "items": [{"a/b": "x"}, {"m~n": "y"}], "none": None}


@pytest.fixture
def echo(organization):
    return factories.tool(organization)


@pytest.fixture
def source(agent, echo):
    """A completed execution with an output."""
    return end_execution(factories.execution(agent), output=OUTPUT)


def end_execution(execution, **fields):
    factories.end_execution(execution, output_bytes=100, **fields)
    return Execution.objects.get(pk=execution.pk)


def pointing(source, path="/output/name"):
    return {"$result": str(getattr(source, "pk", source)), "path": path}


def ask(caller, value, name="echo", **fields):
    return admit(caller, factories.call(name, {"text": value}, **fields))


def refused(caller, value, name="echo"):
    """The error of a call that was refused before it ran."""
    with pytest.raises(InvalidCall) as refusal:
        ask(caller, value, name)
    row = Execution.objects.get(pk=refusal.value.details["execution_id"])
    assert (row.status, row.fence, row.refers_to) == ("ValidationError", 0, [])
    return refusal.value


def test_a_reference_becomes_the_value_it_points_at(agent, source):
    execution = ask(factories.caller(agent), pointing(source))
    perform(execution.pk)
    execution.refresh_from_db()
    assert execution.output == {"echo": {"text": SECRET}}
    assert execution.refers_to == [
        {"place": "/text", "execution_id": str(source.pk), "path": "/output/name",
         "bytes": len(SECRET) + 2}
    ]  # fmt: skip


def test_an_answer_shows_the_reference_as_it_was_sent(agent, source):
    execution = ask(factories.caller(agent), pointing(source))
    shape = execution_shape(execution)
    assert shape["input"]["parameters"] == {"text": pointing(source)}
    assert shape["references"][0]["path"] == "/output/name"


def test_evidence_holds_the_reference_and_no_copy(agent, source):
    execution = ask(factories.caller(agent), pointing(source))
    record = AuditRecord.objects.get(execution_id=execution.pk, code="TOOL.ACCEPT")
    assert record.details["references"][0]["execution_id"] == str(source.pk)
    kept = str(payloads.open_payload(record.pk))
    assert "$result" in kept and SECRET not in kept + str(record.details)


@pytest.mark.part("matrices", but_each=3)
@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/output/count", 3),
        ("/output/items/0/a~1b", "x"),
        ("/output/items/1/m~0n", "y"),
        ("/output/none", None),
        ("/output/items", OUTPUT["items"]),
        ("/output", OUTPUT),
    ],
)
def test_paths_are_json_pointers(agent, organization, source, path, value):
    anything = {"type": "object", "properties": {"text": {}}, "required": ["text"]}
    factories.tool(organization, "any", parameters=None, input_schema=anything)
    assert ask(factories.caller(agent), pointing(source, path), "any").parameters["text"] == value


def test_a_reference_without_a_path_is_the_whole_output(agent, organization, source):
    anything = {"type": "object", "properties": {"text": {}}, "required": ["text"]}
    factories.tool(organization, "any", parameters=None, input_schema=anything)
    execution = ask(factories.caller(agent), {"$result": str(source.pk)}, "any")
    assert execution.parameters == {"text": OUTPUT}


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "path", ["/output/ghost", "/output/items/2", "/output/items/-", "/output/items/00",
             "/output/items/-1", "/output/count/0", "/output/", "/output/items/" + "9" * 30]
)  # fmt: skip
def test_a_path_without_a_value_is_named_in_the_error(agent, source, path):
    refusal = refused(factories.caller(agent), pointing(source, path))
    assert refusal.code == "reference_path"
    assert refusal.details["errors"][0]["place"] == "/text"
    assert refusal.details["errors"][0]["reference"]["path"] == path
    assert SECRET not in str(refusal.details)


@pytest.mark.part("matrices", but_each=4)
@pytest.mark.parametrize(
    "value",
    [
        {"$result": 5},
        {"$result": None},
        {"$result": "no id"},
        {"$result": {"$result": str(uuid4())}},
        {"$result": str(uuid4()), "path": ["/output"]},
        {"$result": str(uuid4()), "path": {"$result": str(uuid4())}},
        {"$result": str(uuid4()), "path": "/parameters/text"},
        {"$result": str(uuid4()), "path": "/outputs"},
        {"$result": str(uuid4()), "path": ""},
        {"$result": str(uuid4()), "path": "/output/~2"},
        {"$result": str(uuid4()), "path": "/output/" + "a" * 1_000},
        {"$result": str(uuid4()), "other": 1},
    ],
)
def test_what_is_no_reference_is_refused(agent, echo, value):
    assert refused(factories.caller(agent), value).code == "reference_invalid"


def test_the_parameters_as_a_whole_are_none(agent, source):
    with pytest.raises(InvalidCall):
        admit(factories.caller(agent), factories.call("echo", pointing(source)))


def test_another_agents_another_organizations_and_no_execution_are_answered_alike(
    agent, organization, source
):
    other = factories.organization(f"{organization.slug}-b")
    factories.tool(other)
    stranger = factories.agent(other, groups=["default"])
    sibling = factories.agent(organization, groups=["default"])
    refusals = set()
    for caller, points_at in (
        (factories.caller(sibling), source.pk),
        (factories.caller(stranger), source.pk),
        (factories.caller(agent), uuid4()),
    ):
        refusal = refused(caller, pointing(points_at))
        refusals.add((refusal.code, refusal.message.replace(str(points_at), "")))
    assert len(refusals) == 1 and refusals.pop()[0] == "reference_not_found"


def test_a_person_may_point_at_what_they_may_see(organization, echo, source):
    person = caller_person(organization, echo)
    assert refused(calling(person), pointing(source)).code == "reference_not_found"
    factories.permit(person, "view_execution")
    assert ask(calling(person), pointing(source)).parameters == {"text": SECRET}


def caller_person(organization, tool):
    """A person who may call the tool."""
    person = factories.person(organization)
    assign_perm("tools.execute_tool", person, tool)
    return person


def calling(person):
    people = type(person).objects.select_related("organization")
    return caller_of_user(people.get(pk=person.pk))


def nested(value, times):
    for _ in range(times):
        value = [value]
    return value


def test_a_token_for_some_tools_points_at_calls_of_these_only(agent, organization, source):
    factories.tool(organization, "other")
    text = factories.token(agent.service_account, tools=["other"])
    refusal = refused(caller_of_token(text), pointing(source), "other")
    assert refusal.code == "reference_not_found"


def test_a_call_that_is_not_over_cannot_be_pointed_at(agent, echo):
    waiting = factories.execution(agent)
    assert refused(factories.caller(agent), pointing(waiting)).code == "reference_not_over"
    factories.claimed(waiting)
    assert refused(factories.caller(agent), pointing(waiting)).code == "reference_not_over"


def test_a_call_that_waits_for_a_person_cannot_be_pointed_at(agent, organization, echo):
    factories.tool(organization, "asks", requires_confirmation=True)
    held = factories.execution(agent, "asks")
    assert refused(factories.caller(agent), pointing(held)).code == "reference_not_over"


@pytest.mark.parametrize("status", ["Failed", "Timeout", "Cancelled", "SandboxError"])
def test_a_call_that_did_not_succeed_cannot_be_pointed_at(agent, echo, status):
    failed = end_execution(factories.execution(agent), status=status, error_code="X")
    assert refused(factories.caller(agent), pointing(failed)).code == "reference_failed"


def test_an_output_that_expired_cannot_be_pointed_at(agent, echo):
    done = timezone.now() - timedelta(days=10)
    old = end_execution(factories.execution(agent), output=OUTPUT, completed_at=done)
    organization = old.organization
    policy.set_output_days(organization=organization, days=7, by=factories.actor(organization))
    organization.refresh_from_db()
    retention.expire_outputs_of(organization)
    assert refused(factories.caller(agent), pointing(old)).code == "reference_expired"


def test_a_value_that_does_not_fit_names_its_reference_and_shows_nothing_of_it(
    agent, organization, source
):
    number = [{"name": "text", "type": "Integer", "description": "n", "required": True}]
    factories.tool(organization, "counts", parameters=number)
    refusal = refused(factories.caller(agent), pointing(source), "counts")
    (error,) = refusal.details["errors"]
    assert (refusal.code, error["place"]) == ("invalid_parameters", "/text")
    assert error["reference"] == pointing(source)
    assert "integer" in error["message"]
    row = Execution.objects.get(pk=refusal.details["execution_id"])
    assert SECRET not in f"{refusal.message} {refusal.details} {row.error_details} {row.parameters}"
    assert SECRET not in str(
        AuditRecord.objects.get(execution_id=row.pk, code="TOOL.INVALID").details
    )


def test_what_is_redacted_comes_redacted(agent, organization, echo):
    factories.tool(organization, "hides", transform={"redact": ["$.echo.text"]})
    first = factories.execution(agent, "hides", text=SECRET)
    perform(first.pk)
    execution = ask(factories.caller(agent), pointing(first, "/output/echo/text"))
    assert execution.parameters == {"text": "[redacted]"}


def test_a_value_that_holds_a_reference_is_not_passed_on(agent, echo):
    """A tool's output cannot make its caller read something else."""
    trap = end_execution(factories.execution(agent), output={"a": [{"$result": str(uuid4())}]})
    assert refused(factories.caller(agent), pointing(trap, "/output/a")).code == "reference_nested"


def test_the_number_of_references_is_limited(agent, organization, source):
    anything = {"type": "object", "properties": {"text": {}}}
    factories.tool(organization, "any", parameters=None, input_schema=anything)
    caller = factories.caller(agent)
    assert ask(caller, [pointing(source)] * 32, "any").parameters["text"] == [SECRET] * 32
    assert refused(caller, [pointing(source)] * 33, "any").code == "reference_limit"
    assert refused(caller, [pointing(uuid4()) for _ in range(9)], "any").code == "reference_limit"


def test_in_a_batch_the_number_of_references_is_limited_for_each_input(organization, echo):
    factories.install(organization)
    agent = factories.agent(organization, groups=["default", "composition"])
    source = end_execution(factories.execution(agent), output=OUTPUT)
    one = {"tool_name": "echo", "parameters": {"text": pointing(source)}}
    many = {"tool_name": "echo", "parameters": {"text": [pointing(source)] * 33}}

    def ask(*inputs):
        call = factories.call("run_batch", {"inputs": list(inputs)}, group=["composition"])
        return admit(factories.caller(agent), call)

    assert len(ask(*[one] * 33).refers_to) == 33
    for wrong in ([many], [one] * 1_001):
        with pytest.raises(InvalidCall, match="references"):
            ask(*wrong)


def test_the_size_of_referenced_values_is_limited(agent, echo):
    large = end_execution(factories.execution(agent), output="x" * (3 * 1024 * 1024))
    value = [pointing(large, "/output")] * 2
    assert refused(factories.caller(agent), value).code == "reference_large"
    huge = factories.execution(agent)
    factories.end_execution(huge, output="x", output_bytes=17 * 1024 * 1024)
    assert refused(factories.caller(agent), pointing(huge, "/output")).code == "reference_large"


def test_what_is_put_in_may_not_nest_deeper_than_parameters_may(agent, organization, echo):
    anything = {"type": "object", "properties": {"text": {}}}
    factories.tool(organization, "any", parameters=None, input_schema=anything)
    source = end_execution(factories.execution(agent), output=nested([], 40))
    outer = nested(pointing(source, "/output"), 40)
    assert refused(factories.caller(agent), outer, "any").code == "reference_large"


def test_a_large_output_outside_its_row_can_be_pointed_at(agent, organization, echo, settings):
    settings.OUTPUT_INLINE_BYTES = 1_000
    first = factories.execution(agent, text="x" * 2_000)
    perform(first.pk)
    first.refresh_from_db()
    assert first.output_digest
    execution = ask(factories.caller(agent), pointing(first, "/output/echo/text"))
    assert execution.parameters == {"text": "x" * 2_000}


def test_what_is_confirmed_is_what_was_resolved_and_runs(agent, organization, source):
    factories.tool(organization, "asks", requires_confirmation=True)
    execution = ask(factories.caller(agent), pointing(source), "asks")
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    perform(execution.pk)
    row = Execution.objects.filter(pk=execution.pk, output__isnull=False)
    assert until(row.first).output == {"echo": {"text": SECRET}}


def test_a_caller_who_may_no_longer_read_the_source_is_refused(organization, echo, source):
    person = caller_person(organization, echo)
    factories.permit(person, "view_execution")
    execution = ask(calling(person), pointing(source))
    person.user_permissions.clear()
    perform(execution.pk)
    done = Execution.objects.get(pk=execution.pk)
    assert (done.status, done.error_code) == ("PermissionDenied", "reference_not_found")
    assert done.output is None


def test_the_same_value_is_answered_from_the_cache_however_it_was_given(
    agent, organization, source
):
    factories.tool(organization, "pure", delivery="pure", cache_ttl="PT5M",
                   constraints={"allow_side_effects": False})  # fmt: skip
    perform(ask(factories.caller(agent), SECRET, "pure").pk)
    again = ask(factories.caller(agent), pointing(source), "pure")
    assert again.cached
    record = AuditRecord.objects.get(execution_id=again.pk, code="TOOL.CACHE_HIT")
    assert record.details["references"]


def test_a_key_stands_for_the_call_as_it_was_sent(agent, source):
    caller = factories.caller(agent)
    one = factories.call("echo", {"text": pointing(source)})
    assert one.fingerprint == factories.call("echo", {"text": pointing(source)}).fingerprint
    assert one.fingerprint != factories.call("echo", {"text": SECRET}).fingerprint
    assert admit(caller, one).parameters == {"text": SECRET}


def test_copies_go_when_the_outputs_of_their_executions_do(agent, organization, source):
    done = timezone.now() - timedelta(days=10)
    failed = ask(factories.caller(agent), pointing(source))
    factories.end_execution(failed, status="Failed", error_code="X", completed_at=done)
    good = ask(factories.caller(agent), pointing(source))
    factories.end_execution(good, output=SECRET, completed_at=done)
    policy.set_output_days(organization=organization, days=7, by=factories.actor(organization))
    organization.refresh_from_db()
    assert retention.expire_outputs_of(organization) == 2
    assert retention.expire_outputs_of(organization) == 0
    for row in Execution.objects.filter(pk__in=[failed.pk, good.pk]):
        assert row.parameters == {"text": pointing(source)} and row.parameters_asked is None
        assert row.refers_to and (row.output_expired_at is None) == (row.pk == failed.pk)


def test_what_a_tool_takes_unseen_is_resolved_all_the_same(agent, organization, source):
    """A permissive validation mode does not bypass the permission check of references."""
    factories.tool(organization, "warns", argument_validation="warn")
    caller = factories.caller(agent)
    assert ask(caller, pointing(source, "/output/count"), "warns").parameters == {"text": 3}
    assert refused(caller, pointing(uuid4()), "warns").code == "reference_not_found"
