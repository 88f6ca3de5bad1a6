"""A worker's part, played in the test: whatever of an organization can go on is performed."""

from django.db import connection
from django.db.models import QuerySet

from tools.execution.pipeline import perform
from tools.models import Execution, queue


def work_off(organization, most=2_000):
    """Until nothing waits that could begin; how many claims that took."""
    for number in range(most):
        waiting = queue.next_of(organization.pk)
        if not waiting:
            connection.close()
            return number
        perform(waiting[0])
    raise AssertionError("it never comes to rest")


def calls_of(execution) -> QuerySet[Execution]:
    return Execution.objects.filter(parent=execution.pk).order_by("created_at", "place")
