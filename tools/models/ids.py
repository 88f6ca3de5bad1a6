"""Generates identifiers that sort by time (UUIDv7, RFC 9562), so that indexes grow at one end."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    return uuid7()
