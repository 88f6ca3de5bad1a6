"""Drop whole months of rows, once retention is over for each row of them.

Until then the rows of a month that is over stay, for up to a month longer than retention says. A
month in which a row has to stay longer is left to be removed row by row, as are the present month
and rows of no month.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from django.db.models import Count, Model, Q, QuerySet
from django.utils import timezone

from audit import partitions
from audit.partitions import Partition, PartitionBusy
from audit.records.retention import record_expiry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonthlyRows:
    """A kind of rows that is partitioned by month, and what retention asks about it."""

    kind: str
    model: type[Model]
    id_column: str  # the lookup of the id that says the month
    organization: str  # the lookup of its slug
    due: Callable[[datetime], QuerySet[Model]]
    # Whether rows of a month are needed by rows of others.
    is_needed: Callable[[Partition], bool] = lambda month: False
    # Deletes what belongs to the rows of a month, batch by batch, before they are dropped.
    clear: Callable[[datetime, Partition], None] = lambda before, month: None
    # Deletes what is known of the rows of a month, in the transaction that drops it.
    forget: Callable[[Partition], None] = lambda month: None
    belonging: "Sequence[MonthlyRows]" = ()  # partitioned by the same ids, and dropped with them

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    def of_month(self, month: Partition) -> QuerySet[Model]:
        return self.model._default_manager.filter(of_month(month, self.id_column))

    def counts(self, month: Partition) -> Counter[str]:
        """How many each organization has."""
        rows = self.of_month(month).order_by().values_list(self.organization)
        return Counter(dict(rows.annotate(count=Count("*"))))


def drop_months(rows: MonthlyRows, before: datetime) -> tuple[list[Partition], int]:
    """Drop the months that ended before then if all their rows are due. The months whose rows stay
    for now, and how many rows went."""
    oldest, now = partitions.first_id(before), partitions.first_id(timezone.now())
    months = [one for one in partitions.partitions_of(rows.table) if one.end is not None]
    over = [one for one in months if one.end is not None and one.end <= now]
    staying = [one for one in over if one.end and one.end > oldest and one.first is not None]
    dropped = 0
    for month in over:
        if month.end is None or month.end > oldest or _has_to_stay(rows, month, before):
            continue
        rows.clear(before, month)
        count = _drop(rows, month, before)
        if count is None:
            staying.append(month)
        else:
            dropped += count
    return staying, dropped


def of_month(month: Partition, column: str = "pk") -> Q:
    """The condition for rows of the month, or for those whose `column` names one of them."""
    condition = Q(**{f"{column}__lt": month.end})
    return condition if month.first is None else condition & Q(**{f"{column}__gte": month.first})


def months_within(month: Partition, rows: MonthlyRows) -> list[Partition]:
    """The partitions of these rows that have nothing but rows of the month."""
    return [
        one
        for one in partitions.partitions_of(rows.table)
        if one.end is not None
        and month.end is not None
        and one.end <= month.end
        and (month.first is None or (one.first is not None and one.first >= month.first))
    ]


def _has_to_stay(rows: MonthlyRows, month: Partition, before: datetime) -> bool:
    """Whether any row is not due, or is needed."""
    due = rows.due(before).filter(of_month(month, rows.id_column))
    return rows.is_needed(month) or rows.of_month(month).count() != due.count()


def _drop(rows: MonthlyRows, month: Partition, before: datetime) -> int | None:
    """How many rows went; None where something uses the table now, and the month is dropped
    later."""
    found: Counter[str] = Counter()
    within = [one for also in rows.belonging for one in months_within(month, also)]
    keep = partial(_keep, rows, month, before, within, found)
    try:
        partitions.drop_partitions([*within, month], keep=keep)
    except PartitionBusy as problem:
        log.info("%s is dropped later: %s", month.name, problem)
        return None
    return found.total()


def _keep(
    rows: MonthlyRows,
    month: Partition,
    before: datetime,
    within: Sequence[Partition],
    found: Counter[str],
) -> bool:
    """Whether anything has to stay. If not, it is recorded how much goes."""
    if _has_to_stay(rows, month, before):
        return True
    kinds = {rows.kind: rows.counts(month)}
    for also in rows.belonging:
        theirs = [also.counts(one) for one in within if one.table == also.table]
        kinds[also.kind] = sum(theirs, Counter())
    found.update(kinds[rows.kind])
    rows.forget(month)
    for organization in sorted({*kinds[rows.kind]}):
        counts = {kind: each[organization] for kind, each in kinds.items() if each[organization]}
        record_expiry(organization, rows.kind, counts, before)
    return False
