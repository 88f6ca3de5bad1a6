"""Advisory locks of PostgreSQL: each is held from here to the end of the transaction.

A key is a text. It must not change while an older version may still run: both must exclude each
other.
"""

from django.db import connection


def take_lock(key: str, *, seed: int = 0) -> None:
    """Wait until no other transaction holds this lock. Keys with another seed are other locks."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, %s))", [key, seed])
