"""What `migrate` asks of the database for itself: Django imports this before it begins."""

from typing import Any

from django.db import connections
from django.db.models.signals import pre_migrate
from django.dispatch import receiver


@receiver(pre_migrate)
def _take_time(using: str, **_: Any) -> None:
    """An index over a long table is worth waiting for: no statement has a time limit then."""
    with connections[using].cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
