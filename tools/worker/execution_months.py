"""Drop whole months of executions, once retention is over for each of them.

Until then the executions of a month that is over stay, for up to a month longer than retention
says. A month in which one has to stay longer, because its session is open or its outcome is unknown
and unresolved, is left to be removed row by row, as are the present month and executions of no
month.
"""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial

from django.db import connection
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from audit import partitions
from audit.partitions import Partition, PartitionBusy
from audit.records.retention import record_expiry
from tools.models import Execution

log = logging.getLogger(__name__)
EXECUTIONS = "tools_execution"
# What is added up of a day is then made of what is left, as where executions are deleted.
_FORGET_DAYS = """
WITH span AS (
    SELECT organization_id, min(created_at) AS first, max(created_at) AS last FROM {name} GROUP BY 1
)
SELECT tools_forget_day(organization_id, moment) FROM span CROSS JOIN LATERAL (
    SELECT generate_series(first, last, interval '12 hours') UNION SELECT last
) AS moments (moment)
"""
_FORGET_KEYS = """
DELETE FROM tools_executionkey
WHERE execution_id >= coalesce(%(first)s, '00000000-0000-0000-0000-000000000000'::uuid)
    AND execution_id < %(end)s
"""


def drop_months(
    before: datetime,
    *,
    due: QuerySet[Execution],
    clear: Callable[[Partition], None],
) -> tuple[list[Partition], Counter[str]]:
    """Drop the months that ended before then if all their executions are `due`. The months whose
    executions stay for now, and how many went.

    `clear` deletes what belongs to the executions of a month, before they are dropped.
    """
    oldest, now = partitions.first_id(before), partitions.first_id(timezone.now())
    months = [one for one in partitions.partitions_of(EXECUTIONS) if one.end is not None]
    over = [one for one in months if one.end is not None and one.end <= now]
    staying = [one for one in over if one.end and one.end > oldest and one.first is not None]
    dropped: Counter[str] = Counter()
    for month in over:
        if month.end is None or month.end > oldest or _has_to_stay(month, due):
            continue
        clear(month)
        counts = _drop(month, before, due)
        if counts is None:
            staying.append(month)
        else:
            dropped += counts
    return staying, dropped


def of_month(month: Partition, column: str = "pk") -> Q:
    """The condition for executions of the month, or for rows whose `column` names one."""
    condition = Q(**{f"{column}__lt": month.end})
    return condition if month.first is None else condition & Q(**{f"{column}__gte": month.first})


def _has_to_stay(month: Partition, due: QuerySet[Execution]) -> bool:
    """Whether any execution is not due, or made one that is in another month."""
    everything = Execution.objects.filter(of_month(month))
    children = Execution.objects.filter(of_month(month, "parent")).exclude(of_month(month))
    return children.exists() or everything.count() != due.filter(of_month(month)).count()


def _drop(month: Partition, before: datetime, due: QuerySet[Execution]) -> Counter[str] | None:
    """How many executions of each organization went; None where something uses the table now, and
    the month is dropped later."""
    counts: Counter[str] = Counter()
    try:
        if partitions.drop_partitions([month], keep=partial(_keep, month, before, due, counts)):
            return counts
    except PartitionBusy as problem:
        log.info("%s is dropped later: %s", month.name, problem)
        return None
    return Counter()


def _keep(
    month: Partition, before: datetime, due: QuerySet[Execution], counts: Counter[str]
) -> bool:
    """Whether anything has to stay. If not, it is recorded how much goes."""
    if _has_to_stay(month, due):
        return True
    rows = Execution.objects.filter(of_month(month)).order_by().values_list("organization__slug")
    counts.update(dict(rows.annotate(count=Count("pk"))))
    with connection.cursor() as cursor:
        cursor.execute(_FORGET_DAYS.format(name=month.name))
        cursor.execute(_FORGET_KEYS, {"first": month.first, "end": month.end})
    for organization, count in sorted(counts.items()):
        record_expiry(organization, "executions", {"executions": count}, before)
    return False
