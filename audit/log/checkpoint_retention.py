"""Checkpoints are thinned by age: all of a log's last day stay, and of what is older the last of
each hour, with all that state an accepted break or vouch for a new key.

A later checkpoint covers what goes: its tree begins with theirs, and the log's rows prove it for
any size. The database refuses what would go beyond that; the sealer thins the anchors alike.
"""

from datetime import timedelta

from django.db import connection

from audit.models import AuditLog, Checkpoint

KEEP_ALL_FOR = timedelta(days=1)
SLACK = timedelta(minutes=10)  # between the clocks of a row and of its note
BATCH = 5_000
_LEAST_SIZE = -(1 << 63)
_THIN = """
WITH looked AS (
    SELECT id, size, note, created_at FROM audit_checkpoint
    WHERE log_id = %(log)s AND (size, id) >= (%(size)s, %(id)s) AND created_at < %(before)s
    ORDER BY size, id LIMIT %(batch)s
), followed AS (
    SELECT *, lead(audit_checkpoint_hour(note)) OVER (ORDER BY size, id) AS hour_after FROM looked
), gone AS (
    DELETE FROM audit_checkpoint WHERE id IN (
        SELECT id FROM followed
        WHERE audit_checkpoint_hour(note) = hour_after AND audit_checkpoint_is_plain(note)
    ) RETURNING id
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM looked), last.size, last.id
FROM looked last ORDER BY last.size DESC, last.id DESC LIMIT 1
"""


def thin_all_logs() -> int:
    """How many checkpoints went, of all logs."""
    return sum(thin_checkpoints(found) for found in AuditLog.objects.order_by("name"))


def thin_checkpoints(found: AuditLog) -> int:
    """Each batch is a transaction of its own, and begins with the last row of the one before."""
    newest = Checkpoint.objects.filter(log=found).order_by("-size", "-id").first()
    if newest is None:
        return 0
    before = newest.created_at - KEEP_ALL_FOR - SLACK
    done, size, number = 0, _LEAST_SIZE, 0
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                _THIN,
                {"log": found.pk, "before": before, "batch": BATCH, "size": size, "id": number},
            )
            row = cursor.fetchone()
        if row is None:
            return done
        gone, looked, size, number = row
        done += gone
        if looked < BATCH:
            return done
