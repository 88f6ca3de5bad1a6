"""Changes that are sent to streams: which call changed, and whose it is, without its content."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Exists, OuterRef

from tools.models import Confirmation, Execution


@dataclass(frozen=True, slots=True)
class ExecutionChange:
    execution_id: UUID
    parent_id: UUID | None
    organization_id: UUID
    people: frozenset[UUID | None]  # the caller, and the user who made the call
    held: bool  # it is or was awaiting approval


def load_changes(ids: Iterable[UUID]) -> list[ExecutionChange]:
    """Uses one query for all of them. Calls that no longer exist are left out."""
    held = Exists(Confirmation.objects.filter(execution=OuterRef("pk")))
    rows = Execution.objects.filter(pk__in=list(ids)).annotate(was_held=held).values_list(
        "pk", "parent_id", "organization_id", "user_id", "made_by_id", "was_held"
    )  # fmt: skip
    return [
        ExecutionChange(pk, parent, organization, frozenset({user, maker}), was_held)
        for pk, parent, organization, user, maker, was_held in rows
    ]
