"""Records of changes: the difference between two states of a thing, under its name."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from audit.actions import Actor, difference, record
from audit.events import Event, Outcome


def record_change(
    event: Event,
    subject: str,
    by: Actor,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    digest: str = "",
    **more: Any,
) -> UUID:
    """Append the record of a change: the values that differ, and `more` in its details."""
    details = {**difference(before, after), **more}
    return record(
        event, by=by, outcome=Outcome.CHANGED, subject=subject, digest=digest, details=details
    )
