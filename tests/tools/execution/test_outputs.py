"""Large outputs are stored outside their rows once, streamed in chunks, and expire."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError
from django.db.models.functions import Now
from django.utils import timezone

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.factories import definition
from tools.accounts import account_actions as policy
from tools.errors import Conflict, Gone, NotFound
from tools.execution import outputs
from tools.execution.admit import admit
from tools.execution.call import Parent
from tools.execution.perform import perform
from tools.models import CacheEntry, Execution, InboxItem, Message, StoredOutput
from tools.worker import retention

pytestmark = pytest.mark.usefixtures("committed")
LONG = "def main(parameters):\n    return 'é' * parameters['count']\n"
LIST = "def main(parameters):\n    return {'items': list(range(parameters['count']))}\n"
COUNT = [{"name": "count", "type": "Integer", "description": "How many.", "required": True}]


@pytest.fixture(autouse=True)
def small_rows(settings):
    settings.OUTPUT_INLINE_BYTES = 2_000


def long_tool(organization, source=LONG, **fields):
    work = {"source": source}
    return factories.tool(organization, "long", parameters=COUNT, implementation=work, **fields)


def ran(agent, count, name="long"):
    execution = factories.execution(agent, name, count=count)
    perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def stored_outputs(organization):
    return StoredOutput.objects.filter(organization=organization)


def past_execution(agent, count, days=10):
    """A call that ended so long ago: the age of a completed row cannot be changed."""
    execution = factories.execution(agent, "long", count=count)
    stored_output = outputs.pack_output("é" * count)
    outputs.store_output(execution.organization_id, stored_output)
    factories.end_execution(
        execution,
        output=stored_output.output,
        output_digest=stored_output.digest,
        output_type=stored_output.type,
        observation="é",
        output_bytes=stored_output.size,
        completed_at=timezone.now() - timedelta(days),
    )
    return Execution.objects.get(pk=execution.pk)


def kept_for(organization, days):
    policy.set_output_days(organization=organization, days=days, by=factories.actor(organization))
    organization.refresh_from_db()


def test_a_small_output_is_stored_in_its_row(agent, organization):
    long_tool(organization)
    done = ran(agent, 10)
    assert (done.output, done.output_digest) == ("é" * 10, "")
    assert not stored_outputs(organization).exists()
    assert outputs.load_output(done) == "é" * 10


def test_a_large_text_is_stored_apart_as_it_is(agent, organization):
    long_tool(organization)
    done = ran(agent, 5_000)
    assert (done.output, done.output_type) == (None, outputs.TEXT)
    assert done.output_bytes == len(json.dumps("é" * 5_000, ensure_ascii=False).encode())
    assert bytes(stored_outputs(organization).get().content) == ("é" * 5_000).encode()
    assert outputs.load_output(done) == "é" * 5_000


def test_a_large_value_is_stored_apart_as_json(agent, organization):
    long_tool(organization, LIST)
    done = ran(agent, 1_000)
    assert done.output_type == outputs.JSON
    assert outputs.load_output(done) == {"items": list(range(1_000))}


def test_what_was_cut_says_so_and_where_the_rest_is(agent, organization):
    long_tool(organization)
    done = ran(agent, 30_000)
    assert done.observation.startswith("é" * 20_000 + "\n… 10000 more characters")
    assert done.observation.endswith(f"GET /api/v1/executions/{done.pk}/output")


def test_the_same_output_is_stored_once_and_never_shared_between_organizations(agent, organization):
    long_tool(organization)
    one, two = ran(agent, 5_000), ran(agent, 5_000)
    other = factories.organization(f"{organization.slug}-b")
    long_tool(other)
    ran(factories.agent(other, groups=["default"]), 5_000)
    assert one.output_digest == two.output_digest
    assert (stored_outputs(organization).count(), stored_outputs(other).count()) == (1, 1)


def test_evidence_names_the_digest(agent, organization):
    long_tool(organization)
    done = ran(agent, 5_000)
    end = AuditRecord.objects.get(execution_id=done.pk, code="TOOL.END")
    assert end.details["output_digest"] == done.output_digest


def test_the_cache_reuses_a_large_output_without_a_copy(agent, organization):
    long_tool(organization, delivery="pure", cache_ttl="PT5M",
              constraints={"allow_side_effects": False})  # fmt: skip
    first, again = ran(agent, 5_000), factories.execution(agent, "long", count=5_000)
    again.refresh_from_db()
    assert again.cached and again.output_digest == first.output_digest
    assert outputs.load_output(again) == "é" * 5_000
    assert stored_outputs(organization).count() == 1


def test_outputs_stay_without_a_retention_setting(agent, organization):
    long_tool(organization)
    done = past_execution(agent, 10, days=3_000)
    retention.expire_outputs()
    done.refresh_from_db()
    assert done.output == "é" * 10


def test_an_output_expires_in_time_and_its_row_says_when(agent, organization):
    long_tool(organization)
    large, small, young = past_execution(agent, 5_000), past_execution(agent, 10), ran(agent, 11)
    kept_for(organization, 7)
    assert retention.expire_outputs_of(organization) == 2
    for row in (large, small, young):
        row.refresh_from_db()
    assert (large.output_digest, small.output) == ("", None)
    assert large.output_expired_at and small.output_expired_at
    assert (small.observation, small.output_bytes) == ("", 22)
    assert young.output == "é" * 11
    with pytest.raises(Gone):
        outputs.load_output(large)
    record = AuditRecord.objects.get(organization=organization.slug, code="OUTPUT.EXPIRE")
    assert record.details["outputs"] == 2


def made_by(agent, text, days=10, status="Success"):
    """A call of another call, and its parent, which is still open."""
    parent = factories.execution(agent, "echo")
    call = factories.execution(agent, "echo", text=text, parent=Parent(parent.pk, "one", 1))
    failed = {"error_code": "X"} if status == "Failed" else {"output": text}
    ended = timezone.now() - timedelta(days)
    factories.end_execution(call, status=status, completed_at=ended, **failed)
    return parent, call


@pytest.mark.parametrize("status", ["Success", "Failed"])
def test_what_a_call_was_made_with_goes_with_the_outputs_it_is_made_of(agent, organization, status):
    factories.tool(organization)
    parent, call = made_by(agent, "secret", status=status)
    factories.end_execution(parent, output="x", completed_at=timezone.now() - timedelta(10))
    kept_for(organization, 7)
    assert retention.expire_outputs_of(organization) == 2
    for row in (parent, call):
        row.refresh_from_db()
    assert (call.parameters, call.output) == ({}, None)
    assert parent.parameters == {"text": "x"}  # the parameters that its caller sent
    assert retention.expire_outputs_of(organization) == 0


def test_a_call_keeps_its_output_while_what_made_it_is_not_over(agent, organization):
    factories.tool(organization)
    _, call = made_by(agent, "needed")
    kept_for(organization, 7)
    assert retention.expire_outputs_of(organization) == 0
    call.refresh_from_db()
    assert call.output == "needed"


def test_unreferenced_outputs_are_swept_and_referenced_ones_stay(agent, organization):
    long_tool(organization)
    past_execution(agent, 5_000), past_execution(agent, 5_001)
    same = ran(agent, 5_001)
    kept_for(organization, 7)
    retention.expire_outputs_of(organization)
    retention.delete_unreferenced_outputs()
    assert stored_outputs(organization).count() == 2  # too recent: a row may soon refer to it
    stored_outputs(organization).update(kept_at=Now() - timedelta(hours=2))
    retention.delete_unreferenced_outputs()
    assert (
        stored_outputs(organization).get().digest == Execution.objects.get(pk=same.pk).output_digest
    )


def written(organization, days):
    """A message that was written so long ago."""
    row = Message.objects.create(organization=organization, channel_name="desk", kind="inbox")
    Message.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(days))
    InboxItem.objects.create(message=row, user=factories.person(organization))
    return row


def test_messages_are_deleted_in_time_from_inboxes_too(organization, settings):
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"messages": 7}
    written(organization, 8), written(organization, 800)
    young = written(organization, 6)
    retention.expire_outputs()
    assert Message.objects.get(organization=organization) == young
    assert InboxItem.objects.get(user__organization=organization).message == young
    record = AuditRecord.objects.get(organization=organization.slug, code="MESSAGE.EXPIRE")
    assert record.details["messages"] == 2


def test_messages_stay_where_the_installation_keeps_them_for_ever(organization, settings):
    settings.RETENTION_DAYS = settings.RETENTION_DAYS | {"messages": 0}
    row = written(organization, 3_000)
    retention.expire_outputs()
    assert Message.objects.get(organization=organization) == row


def test_an_expired_output_is_not_reused(agent, organization):
    long_tool(organization, delivery="pure", cache_ttl="P30D",
              constraints={"allow_side_effects": False})  # fmt: skip
    done = past_execution(agent, 5_000)
    until = timezone.now() + timedelta(days=1)
    CacheEntry.objects.create(
        key=done.cache_key, organization=organization, tool=done.tool_version.tool, execution=done,
        ready=True, expires_at=until,
    )  # fmt: skip
    kept_for(organization, 7)
    retention.expire_outputs_of(organization)
    assert not CacheEntry.objects.filter(execution=done).exists()
    again = factories.execution(agent, "long", count=5_000)
    assert again.status == "Pending"


def test_a_call_that_is_not_over_or_failed_has_no_output_to_read(agent, organization):
    factories.tool(organization)
    waiting = factories.execution(agent)
    with pytest.raises(Conflict):
        outputs.load_content(waiting)
    factories.end_execution(waiting, status="Failed", error_code="X")
    with pytest.raises(NotFound):
        outputs.load_content(Execution.objects.get(pk=waiting.pk))


def test_a_policy_is_on_record_with_what_was_before(organization):
    kept_for(organization, 7)
    record = AuditRecord.objects.filter(
        organization=organization.slug, code="ADMIN.ORGANIZATION_CHANGE"
    ).latest("id")
    assert record.details["after"] == {"output_days": 7}
    assert record.details["before"] == {"output_days": None}


def test_a_definition_selects_redacts_and_writes_what_is_observed(agent, organization):
    source = (
        "def main(p):\n    return {'all': [{'name': 'a', 'key': 's'}, {'name': 'b'}], 'x': 1}\n"
    )
    transform = {
        "select": "$.all",
        "redact": ["$[*].key"],
        "observation": "{% for one in output %}{{ one.name }};{% endfor %}",
    }
    raw = definition("cut", parameters=[], implementation={"source": source}, transform=transform)
    factories.register(organization, raw)
    execution = admit(factories.caller(agent), factories.call("cut"))
    perform(execution.pk)
    execution.refresh_from_db()
    assert execution.output == [{"name": "a", "key": "[redacted]"}, {"name": "b"}]
    assert execution.observation == "a;b;"


def test_what_is_not_there_to_select_ends_the_call_without_an_output(agent, organization):
    factories.tool(organization, "cut", transform={"select": "$.nothing"})
    execution = factories.execution(agent, "cut")
    perform(execution.pk)
    execution.refresh_from_db()
    assert (execution.status, execution.error_code) == ("Failed", "OUTPUT_INVALID")


def test_an_output_that_does_not_fit_the_template_is_observed_as_it_is(agent, organization):
    transform = {"observation": "{% for x in output.echo.text %}{{ x }}{% endfor %}"}
    factories.tool(organization, "cut", transform=transform)
    execution = factories.execution(agent, "cut")
    perform(execution.pk)
    execution.refresh_from_db()
    assert execution.observation == '{"echo": {"text": "x"}}'


def test_an_ended_execution_cannot_get_another_output(agent, organization):
    long_tool(organization)
    done = ran(agent, 10)
    row = Execution.objects.filter(pk=done.pk)
    for fields in ({"output": "x"}, {"output": None}, {"observation": ""}, {"parameters": {}}):
        with pytest.raises(IntegrityError):
            row.update(**fields)


FLOATS = [1e22, -1.5e300, 1e16, 0.1, 2.0]
KINDS = (
    "def main(parameters):\n"
    "    given = parameters['given']\n"
    "    return {'given': given, 'kinds': [type(one).__name__ for one in given]}\n"
)


def called(agent, name, **parameters):
    execution = admit(factories.caller(agent), factories.call(name, parameters))
    if execution.status == "Pending":
        perform(execution.pk)
    return Execution.objects.get(pk=execution.pk)


def kinds_of(agent, given):
    """The types that reached the code, and those that were returned."""
    found = called(agent, "kinds", given=given)
    assert found.status == "Success", (found.error_code, found.error_message)
    return found, found.output["kinds"], [type(one).__name__ for one in found.output["given"]]


def test_a_float_stays_a_float(agent, organization):
    """In parameters, output, observation, cache and audit log."""
    array = {"name": "given", "type": "Array", "description": "What.", "required": True}
    factories.tool(
        organization, "kinds", parameters=[array], implementation={"source": KINDS},
        delivery="pure", cache_ttl="PT5M",
    )  # fmt: skip
    first, inside, outside = kinds_of(agent, FLOATS)
    assert (inside, outside) == (["float"] * 5, ["float"] * 5)
    assert first.output["given"] == first.parameters["given"] == FLOATS
    assert json.dumps(first.parameters["given"]) == json.dumps(FLOATS)
    assert "[1e+22, -1.5e+300, 1e+16, 0.1, 2.0]" in first.observation
    again, _, outside = kinds_of(agent, first.output["given"])
    assert again.cached and outside == ["float"] * 5
    record = AuditRecord.objects.get(execution_id=first.pk, outcome="success")
    kept = payloads.open_payload(record.pk)["payload"]["output"]["given"]
    assert (kept, [type(one).__name__ for one in kept]) == (FLOATS, ["float"] * 5)


def test_a_default_reaches_the_code_as_the_float_that_it_is(agent, organization):
    array = {"name": "given", "type": "Array", "description": "What.", "default": FLOATS}
    factories.tool(organization, "kinds", parameters=[array], implementation={"source": KINDS})
    done = called(agent, "kinds")
    assert (done.output["given"], done.output["kinds"]) == (FLOATS, ["float"] * 5)


def test_whole_numbers_stay_whole(agent, organization):
    array = {"name": "given", "type": "Array", "description": "What.", "required": True}
    factories.tool(organization, "kinds", parameters=[array], implementation={"source": KINDS})
    _, inside, outside = kinds_of(agent, [0, -7, 2**53])
    assert (inside, outside) == (["int"] * 3, ["int"] * 3)


LARGE = [1917043659912705296, -(2**63), 2**64 - 1, 10**23]


def test_a_large_integer_that_a_tool_gives_back_is_exact(agent, organization):
    """In output, observation, REST, cache and audit log, and where a call refers to it."""
    source = f"def main(p):\n    return {{'given': {LARGE}}}\n"
    factories.tool(
        organization, "ids", implementation={"source": source}, parameters=[],
        delivery="pure", cache_ttl="PT5M",
    )  # fmt: skip
    array = {"name": "given", "type": "Array", "description": "What.", "required": True}
    factories.tool(organization, "kinds", parameters=[array], implementation={"source": KINDS})
    first, again = called(agent, "ids"), called(agent, "ids")
    assert (first.status, first.output) == ("Success", {"given": LARGE}), first.error_message
    assert (again.cached, again.output) == (True, first.output)
    assert str(LARGE[0]) in first.observation and str(LARGE[3]) in again.observation
    shown = factories.api(agent).get(f"/executions/{first.pk}").content.decode()
    assert json.dumps(LARGE, separators=(",", ":")) in shown.replace(" ", "")
    record = AuditRecord.objects.get(execution_id=first.pk, code="TOOL.END")
    kept = payloads.open_payload(record.pk)["payload"]["output"]["given"]
    assert [Decimal(str(one)) for one in kept] == LARGE
    reference = {"$result": str(first.pk), "path": "/output/given"}
    referred, inside, outside = kinds_of(agent, reference)
    assert (referred.output["given"], inside, outside) == (LARGE, ["int"] * 4, ["int"] * 4)
