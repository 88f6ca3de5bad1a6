"""Audit records for users that Django's own commands create or change, in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

from audit.actions import record
from audit.events import Event, Outcome
from tools.management.command import operator
from tools.models import User


@contextmanager
def unhurried() -> Iterator[None]:
    """One transaction without an idle timeout, since the operator types a password during it."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield


def note(person: User, details: dict[str, Any]) -> None:
    record(
        Event.ROW_CHANGE,
        by=operator(person.organization.slug),
        outcome=Outcome.CHANGED,
        subject=f"user:{person.username}",
        details=details,
    )
