"""Where evidence cannot be written no tool starts, and the answer says why."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest
from django.db import connection, connections

from audit.models import AuditRecord
from tests import factories
from tests.conditions import until
from tests.crib import Crib
from tests.tools.execution.workers import stopped
from tools.models import Execution


@contextmanager
def changed(do: str, undo: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(do)
        try:
            yield
        finally:
            cursor.execute(undo)


Way = AbstractContextManager[None]


def refuses_rows() -> Way:
    function = """
        CREATE FUNCTION pg_temp_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$;
        CREATE TRIGGER refuses BEFORE INSERT ON audit_auditrecord
            FOR EACH ROW EXECUTE FUNCTION pg_temp_refuse()
    """
    undo = "DROP TRIGGER refuses ON audit_auditrecord; DROP FUNCTION pg_temp_refuse()"
    return changed(function, undo)


def may_not_be_written() -> Way:
    return changed(
        "REVOKE INSERT ON audit_auditrecord FROM CURRENT_USER",
        "GRANT INSERT ON audit_auditrecord TO CURRENT_USER",
    )


def is_not_there() -> Way:
    return changed(
        "ALTER TABLE audit_auditrecord RENAME TO elsewhere",
        "ALTER TABLE elsewhere RENAME TO audit_auditrecord",
    )


def keeps_no_payloads() -> Way:
    return changed(
        "ALTER TABLE audit_auditpayload ADD CONSTRAINT is_full CHECK (false) NOT VALID",
        "ALTER TABLE audit_auditpayload DROP CONSTRAINT is_full",
    )


@contextmanager
def is_locked() -> Iterator[None]:
    other = connections.create_connection("default")
    other.set_autocommit(False)
    try:
        with other.cursor() as cursor:
            cursor.execute("LOCK TABLE audit_auditrecord IN EXCLUSIVE MODE")
        yield
    finally:
        other.rollback()
        other.close()


WAYS: list[Any] = [
    refuses_rows, may_not_be_written, is_not_there, keeps_no_payloads,
    pytest.param(is_locked, marks=pytest.mark.part("faults")),  # until the lock's time is over
]  # fmt: skip
in_each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@in_each_way
def test_no_tool_starts_while_the_audit(way, http, organization):
    factories.tool(organization)
    with way():
        answer = http.execute("echo", {"text": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_unavailable")
    assert "audit record" in answer.json()["message"] and answer.headers["Retry-After"]
    assert not Execution.objects.filter(organization=organization).exists()
    after = until(lambda: (a := http.execute("echo", {"text": "x"})).status_code == 200 and a)
    assert after.json()["status"] == "Success"


@pytest.mark.part("walks")
@pytest.mark.usefixtures("committed")
@in_each_way
def test_what_was_accepted_before_waits_until_it_can_be_put_on_record(way, crib, organization):
    factories.tool(organization)
    agent = factories.agent(organization, groups=["default"])
    with ExitStack() as unwritable:
        with stopped(crib):  # nothing is begun before the audit is unwritable
            execution = factories.execution(agent)
            unwritable.enter_context(way())
            lines = _said_by_the_worker(crib)
        until(lambda: b"was not begun" in _said_by_the_worker(crib)[len(lines) :])
        waiting = Execution.objects.get(pk=execution.pk)
        assert (waiting.status, waiting.fence, waiting.stumbles) == ("Pending", 0, 0)
    until(lambda: Execution.objects.get(pk=execution.pk).status == "Success")
    started = AuditRecord.objects.filter(execution_id=execution.pk, code="TOOL.START")
    assert started.count() == 1


def _said_by_the_worker(crib: Crib) -> bytes:
    return (crib.data / "log" / "worker.log").read_bytes()


def test_a_refusal_that_cannot_be_put_on_record_is_still_no_yes(http, organization):
    factories.tool(organization, group=["admin"])
    with refuses_rows():
        answer = http.execute("echo", {"text": "x"})
    assert (answer.status_code, answer.json()["code"]) == (503, "audit_unavailable")
