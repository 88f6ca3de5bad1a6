"""Generates identifiers that sort by time (UUIDv7, RFC 9562), so that indexes grow at one end."""

from datetime import timedelta
from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    return uuid7()


def made_before(identifier: UUID, time: timedelta) -> UUID:
    """The least id that may be made so long before that one was."""
    return UUID(int=max(0, identifier.int - (int(time.total_seconds() * 1000) << 80)))
