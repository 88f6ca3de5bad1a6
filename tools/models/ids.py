"""Identifiers that sort by time (RFC 9562, version 7), so that indexes grow at one end."""

from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    return uuid7()
