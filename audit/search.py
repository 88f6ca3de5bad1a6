"""Finding records. Every search stays in one organization."""

from datetime import datetime

from django.db import models
from django.db.models import Q, QuerySet
from django.db.models.functions import Cast

from audit.models import AuditRecord

_EXACT = {"agent": "actor", "actor": "actor", "tool": "subject", "execution": "execution_id",
          "outcome": "outcome"}  # fmt: skip


def records_of(organization: str) -> QuerySet[AuditRecord]:
    return AuditRecord.objects.filter(organization=organization)


def search(
    organization: str,
    *,
    exact: dict[str, str],
    code: str = "",
    since: datetime | None = None,
    text: str = "",
) -> QuerySet[AuditRecord]:
    """`exact` maps search fields to values; a code ending in `.` stands for all that begin so."""
    found = records_of(organization)
    for name, value in exact.items():
        found = found.filter(**{_EXACT[name]: value})
    if code:
        found = (
            found.filter(code__startswith=code) if code.endswith(".") else found.filter(code=code)
        )
    if since:
        found = found.filter(occurred_at__gte=since)
    for word in text.split()[:5]:
        found = found.alias(as_text=Cast("details", models.TextField())).filter(
            Q(as_text__icontains=word)
            | Q(subject__icontains=word)
            | Q(actor__icontains=word)
            | Q(reason__icontains=word)
        )
    return found


FIELDS = tuple(_EXACT)
