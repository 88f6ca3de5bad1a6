"""The inbox of a person: messages of one organization, and marking them as read."""

from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from tools.models import InboxItem


def items_of(user_id: UUID, organization_id: UUID) -> QuerySet[InboxItem]:
    found = InboxItem.objects.filter(user_id=user_id, message__organization_id=organization_id)
    return found.select_related("message")


def mark_read(item: InboxItem) -> None:
    """The first time counts; safe to repeat."""
    now = timezone.now()
    if InboxItem.objects.filter(pk=item.pk, read_at=None).update(read_at=now):
        item.read_at = now
    elif item.read_at is None:
        item.refresh_from_db(fields=["read_at"])
