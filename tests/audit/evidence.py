"""Evidence to work on, in the ledger of a test."""

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction

from audit.actions import Actor, record
from audit.events import Event, Outcome
from audit.log.sealer import seal_logs
from audit.models import AuditRecord
from tests.audit.logs import settled
from tests.conditions import until

HERE = "here"
BY = Actor("agent", "magpie", HERE, source_ip="10.1.2.3", request_id="r-1")
ADMIN = Actor("person", "root", HERE)


def call(by: Actor = BY, text: str = "hello", **fields: Any) -> UUID:
    """The record of one call, with what went in."""
    with transaction.atomic():
        return record(
            Event.TOOL_START,
            by=by,
            outcome=Outcome.STARTED,
            subject="shiny",
            execution_id=fields.pop("execution_id", None) or uuid4(),
            payload={"parameters": {"text": text}},
            **fields,
        )


def sealed(count: int) -> list[UUID]:
    made = [call(text=f"word{n}") for n in range(count)]
    until(settled)
    assert seal_logs(HERE) >= count
    return made


def events(code: Event) -> list[AuditRecord]:
    return [*AuditRecord.objects.filter(code=code).order_by("occurred_at")]


def database_now() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]
