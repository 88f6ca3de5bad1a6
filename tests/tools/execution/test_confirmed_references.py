"""Approval of a call with references applies to the values that the references had then."""

import pytest

from audit.models import AuditRecord
from audit.records import payloads
from tests import factories
from tests.tools.approval_requests import approve, approver, attempted
from tools.execution.admit import admit
from tools.models import Confirmation, Execution
from tools.shapes.executions import confirmation_shape

pytestmark = pytest.mark.django_db
SECRET = "swordfish-7"


@pytest.fixture
def source(agent, organization):
    factories.tool(organization)
    execution = factories.execution(agent)
    factories.end_execution(execution, output={"name": SECRET}, output_bytes=30)
    return execution


def pointing(source):
    return {"$result": str(source.pk), "path": "/output/name"}


def ask(caller, value, name):
    return admit(caller, factories.call(name, {"text": value}))


def test_an_approver_sees_resolved_references_and_evidence_does_not(agent, organization, source):
    factories.tool(organization, "asks", requires_confirmation=True)
    execution = ask(factories.caller(agent), pointing(source), "asks")
    confirmation = Confirmation.objects.get(execution=execution)
    shape = confirmation_shape(confirmation)
    assert shape["parameters"] == {"text": SECRET}
    assert shape["references"][0]["execution_id"] == str(source.pk)
    approve(confirmation, approver(organization))
    codes = ("TOOL.HELD", "CONFIRM.APPROVE")
    for record in AuditRecord.objects.filter(execution_id=execution.pk, code__in=codes):
        assert SECRET not in f"{record.details} {payloads.open_payload(record.pk)}"


@pytest.mark.parametrize("other", [{"parameters": {"text": "other"}}, {"refers_to": []}])
def test_an_approval_is_not_valid_for_another_value_or_reference(
    agent, organization, source, other
):
    factories.tool(organization, "asks", requires_confirmation=True)
    execution = ask(factories.caller(agent), pointing(source), "asks")
    approve(Confirmation.objects.get(execution=execution), approver(organization))
    Execution.objects.filter(pk=execution.pk).update(**other)
    assert attempted(execution).error_code == "confirmation_changed"
