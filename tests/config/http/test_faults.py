"""A fault of ours is answered 500 with the request's name, is on record and raises an alert."""

import pytest
from django.test import Client

from audit.alerts import alerts
from audit.models import Alert, AuditRecord
from config.http import errors
from tests import factories
from tests.tools.shapes import check_error
from tools.api.catalog.groups import GroupList


@pytest.fixture
def broken(monkeypatch, organization, agent):
    """Asks the API of an agent whose list of groups is broken."""

    def fails(*_, **__):
        raise LookupError("a secret value 7391")

    errors._recorded_at.clear()
    monkeypatch.setattr(GroupList, "get", fails)
    headers = {"Authorization": f"Bearer {factories.token(agent.service_account)}"}
    client = Client(raise_request_exception=False, headers=headers)
    return lambda: client.get("/api/v1/groups")


def test_a_fault_is_on_record_once_a_minute_and_tells_no_values(broken, organization):
    answers = [broken() for _ in range(3)]
    error = check_error(answers[0], 500, "internal_error")
    assert "7391" not in answers[0].content.decode()
    found = AuditRecord.objects.get(organization=organization.slug, code="SYSTEM.FAULT")
    assert found.request_id == error["request_id"]
    assert (found.subject, found.reason) == ("GET /api/v1/groups", "LookupError")
    assert "7391" not in str(found.details)


def test_a_fault_raises_an_alert(broken, organization):
    broken()
    alerts.raise_all_alerts()
    found = Alert.objects.get(organization=organization.slug, rule="faults")
    assert (found.subject, found.severity) == ("GET /api/v1/groups", "critical")


def test_a_fault_of_who_is_unknown_is_counted(monkeypatch, db):
    def fails(*_, **__):
        raise LookupError

    monkeypatch.setattr("tools.web.probes.healthz", fails)
    before = errors.server_errors.labels("GET /login/")._value.get()
    monkeypatch.setattr("tools.ui.accounts.login.next_address", fails)
    answer = Client(raise_request_exception=False).get("/login/")
    assert answer.status_code == 500
    assert errors.server_errors.labels("GET /login/")._value.get() == before + 1
