"""Usage metrics of calls: SQL aggregates shared by live queries and daily rollups."""

from decimal import Decimal
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db.models import Aggregate, Count, DecimalField, FloatField, Q, Sum, Value
from django.db.models.functions import Coalesce

from tools.definitions.results import FAILURES, FINAL, REFUSED, Status

_NEVER_BEGAN = Q(status=Status.CANCELLED, started_at__isnull=True)
PAID = Q(status__in=sorted(FINAL - REFUSED)) & ~_NEVER_BEGAN
RAN = Q(duration_ms__isnull=False) & ~Q(status__in=sorted(REFUSED))


class Percentiles(Aggregate):
    """The median and the 95th percentile, exactly; None where nothing is."""

    function = "percentile_cont"
    template = "%(function)s(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY %(expressions)s)%(filter)s"
    output_field = ArrayField(FloatField())


def _no_less(total: Any) -> Any:
    money = DecimalField(max_digits=24, decimal_places=6)
    return Coalesce(total, Value(Decimal(0)), output_field=money)


COUNTS = {
    "calls": Count("pk"),
    "failures": Count("pk", filter=Q(status__in=sorted(FAILURES))),
    "denials": Count("pk", filter=Q(status__in=sorted(REFUSED))),
    "hits": Count("pk", filter=Q(cached=True)),
    "spent": _no_less(Sum("cost", filter=PAID)),
}
LATENCIES = {"latencies": Percentiles("duration_ms", filter=RAN)}
# The same of days that were added up.
SUMS = {
    "calls": Sum("calls"),
    "failures": Sum("failures"),
    "denials": Sum("denials"),
    "hits": Sum("cached"),
    "spent": _no_less(Sum("cost")),
}
