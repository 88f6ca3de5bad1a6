"""Generates identifiers that sort by time (UUIDv7, RFC 9562), so that indexes grow at one end."""

from datetime import datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

_LAST_MS = (1 << 48) - 1


def new_id() -> UUID:
    return uuid7()


def made_before(identifier: UUID, time: timedelta) -> UUID:
    """The least id that may be made so long before that one was."""
    return UUID(int=max(0, identifier.int - (int(time.total_seconds() * 1000) << 80)))


def least_id(moment: datetime, apart: timedelta) -> UUID:
    """The least id that may be made at that moment, so far apart from it, or later."""
    ms = int((moment.timestamp() + apart.total_seconds()) * 1000)
    return UUID(int=max(0, min(ms, _LAST_MS)) << 80)
