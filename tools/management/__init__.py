"""Management commands. Django imports this package before `migrate`, which gets no statement
timeout here."""

from typing import Any

from django.db import connections
from django.db.models.signals import pre_migrate
from django.dispatch import receiver


@receiver(pre_migrate)
def _take_time(using: str, **_: Any) -> None:
    """Turn the statement timeout off: creating an index on a large table takes long."""
    with connections[using].cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
