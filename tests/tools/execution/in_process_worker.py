"""Performs all of an organization's calls in the test, as a worker would."""

from django.db import connection
from django.db.models import QuerySet

from tools.execution.perform import perform
from tools.models import Execution, queue


def work_off(organization, most=2_000):
    """Perform until no call can start; return the number of claims."""
    for number in range(most):
        waiting = queue.next_of_organization(organization.pk)
        if not waiting:
            connection.close()
            return number
        perform(waiting[0])
    raise AssertionError("it never comes to rest")


def calls_of(execution) -> QuerySet[Execution]:
    return Execution.objects.filter(parent=execution.pk).order_by("created_at", "place")
