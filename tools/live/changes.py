"""What changed, as the streams are told it: which call, and whose it is. Nothing of its content."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef

from tools.models import Confirmation, Execution


@dataclass(frozen=True, slots=True)
class Change:
    execution_id: UUID
    parent_id: UUID | None
    organization_id: UUID
    people: frozenset[UUID | None]  # whose call it is, and who made it
    held: bool  # it waits for a person, or did


def changes(ids: Iterable[UUID]) -> list[Change]:
    """One query for all of them. What is gone has changed nothing that a page shows."""
    held = Exists(Confirmation.objects.filter(execution=OuterRef("pk")))
    rows = Execution.objects.filter(pk__in=list(ids)).annotate(was_held=held).values_list(
        "pk", "parent_id", "organization_id", "user_id", "made_by_id", "was_held"
    )  # fmt: skip
    return [
        Change(pk, parent, organization, frozenset({user, maker}), was_held)
        for pk, parent, organization, user, maker, was_held in rows
    ]
