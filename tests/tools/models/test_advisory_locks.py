"""Advisory locks are those of older versions, which may still run: keys and kinds do not change."""

import pytest
from django.db import connection, transaction

from tools.models.advisory_locks import take_lock

pytestmark = pytest.mark.django_db

_HELD = """
SELECT mode FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND granted
    AND (classid::bigint << 32 | objid::bigint) = hashtextextended('a key', %s)
"""


@pytest.mark.parametrize(
    ("take", "seed", "mode"),
    [
        (lambda: take_lock("a key"), 0, "ExclusiveLock"),
        (lambda: take_lock("a key", seed=1), 1, "ExclusiveLock"),
    ],
)
def test_a_lock_is_held_under_the_hash_of_its_key(take, seed, mode):
    with transaction.atomic(), connection.cursor() as cursor:
        take()
        cursor.execute(_HELD, [seed])
        assert cursor.fetchall() == [(mode,)]
